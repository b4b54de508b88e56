#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that pictures of many sizes, modes and depths are converted in the same way as by Pillow.

    pictures_as_pillow.py TRAINER
    pictures_as_pillow.py --tables > pillow_tables.h

With data.image_size both scale a picture until its shorter side fits, keep its middle, and average pixels with
triangular weights; the results may differ by rounding. With data.resize the bytes are those of Pillow 13. (Older
versions always resize the lines before the columns, so their last bits differ for some high pictures. The expected
pictures are therefore computed in two steps, in the order of Pillow 13.)

The tables are pictures that Pillow has resized, for test_picture_resize.c, which needs no Pillow.
"""
import json
import pathlib
import os
import random
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from PIL import Image, ImageOps
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

SIDE, PICTURES = 32, 200
# The operation that makes an image upright, for each EXIF orientation, as in ImageOps.exif_transpose.
TURNS = [None, None, Image.FLIP_LEFT_RIGHT, Image.ROTATE_180, Image.FLIP_TOP_BOTTOM, Image.TRANSPOSE, Image.ROTATE_270,
         Image.TRANSVERSE, Image.ROTATE_90]
# Largest mean difference of a picture's samples, of 255.
MOST = 1


def save(path, mode, rng):
    width, height = random.randint(1, 300), random.randint(1, 300)
    low = rng.integers(0, 256, (max(1, height // 8), max(1, width // 8), 3), dtype=np.uint8)
    picture = Image.fromarray(low).resize((width, height), Image.BICUBIC)
    if mode == "I;16":
        picture = Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
    elif mode == "P":
        picture = picture.quantize(64)
    else:
        picture = picture.convert(mode)
    more = {}
    if path.endswith("jpg"):
        exif = Image.Exif()
        exif[0x112] = random.randint(1, 8)
        more = {"quality": 95, **({"exif": exif} if random.random() < 0.5 else {})}
    picture.save(path, **more)


def reduction(width, height):
    """Returns by how much Lockstep reduces a JPEG while it decodes it: by 1, 2, 4 or 8, like Pillow's draft mode. The
    decoder then averages pixels instead of the filter, which changes the mean of a picture by up to 2.2. In this test
    Pillow decodes at the same scale, so that only the steps after decoding are compared."""
    by = 1
    while by < 8 and all(side == 2 * by * SIDE or 2 * side >= 6 * by * SIDE for side in (width, height)):
        by *= 2
    return by


def expected(path):
    picture = Image.open(path)
    width, height = picture.size
    if path.endswith("jpg"):
        by = reduction(width, height)
        picture.draft(None, (width // by, height // by))
        assert picture.size == (-(-width // by), -(-height // by)), picture.size
        width, height = width / by, height / by
    if picture.mode.startswith("I"):
        picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    picture = picture.convert("RGBA").convert("RGB") if picture.mode in ("P", "LA", "RGBA") else picture.convert("RGB")
    turn = picture.getexif().get(0x112, 1) if path.endswith("jpg") else 1
    side = min(width, height)
    box = [(width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2]
    scaled = picture.resize((SIDE, SIDE), Image.BILINEAR, box=box)
    scaled = scaled.transpose(TURNS[turn]) if turn > 1 else scaled
    return np.asarray(scaled).transpose(2, 0, 1).astype(int)


FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}


def resized_size(width, height, to):
    """Returns width and height as of torchvision's Resize: `to` is the shorter side, or [height, width]."""
    if isinstance(to, list):
        return to[1], to[0]
    return (to, int(to * height / width)) if width <= height else (int(to * width / height), to)


def resized(picture, to, name):
    width, height = picture.size
    wide, high = resized_size(width, height, to)
    down_first = height > high and height - high > 2 * (width - wide)
    between = (width, high) if down_first else (wide, height)
    return picture.resize(between, FILTERS[name]).resize((wide, high), FILTERS[name])


def centre(picture, crop):
    """Cuts out the centre as torchvision's CenterCrop does."""
    high, wide = crop if isinstance(crop, list) else (crop, crop)
    top, left = round((picture.height - high) / 2), round((picture.width - wide) / 2)
    return picture.crop((left, top, left + wide, top + high))


def upright(path, channels):
    picture = ImageOps.exif_transpose(Image.open(path))
    if picture.mode in ("P", "LA", "RGBA"):
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture.convert("RGBA"))
    return picture.convert("RGB").convert("RGB" if channels == 3 else "L")


def packed_rows(trainer, options):
    subprocess.run([trainer, "pack", ".", "--to", "packed", "--quiet", *options], check=True, stderr=subprocess.DEVNULL)
    packed = pathlib.Path("packed").read_bytes()
    length = int.from_bytes(packed[:8], "little")
    entry = json.loads(packed[8:8 + length])["x"]
    begin, end = (8 + length + offset for offset in entry["data_offsets"])
    os.remove("packed")
    return np.frombuffer(packed[begin:end], np.uint8).reshape(entry["shape"])


def same_bytes(trainer, names):
    """Returns how many rows of data.resize are not those of Pillow. 16-bit pictures and those with alpha are left out:
    Pillow reduces and lays them on white in another way."""
    wrong = 0
    plain = {name: Image.open(name).mode in ("RGB", "L", "1", "CMYK") for name in names}
    for to, crop, name, channels in ((256, 224, "bilinear", 3), (33, [20, 33], "bicubic", 3), (24, 17, "bicubic", 1),
                                     ([48, 100], None, "bilinear", 3), ([9, 40], [8, 13], "bicubic", 1)):
        keys = [f"data.resize={to}", f"data.interpolation={name}", f"data.channels={channels}"]
        keys = ["data.pictures=imagenet"] if to == 256 else keys + ([f"data.crop={crop}"] if crop else [])
        rows = packed_rows(trainer, [part for key in keys for part in ("--set", key)])
        differ = []
        for path, row in zip(sorted(names), rows):
            if plain[path]:
                want = resized(upright(path, channels), to, name)
                want = np.asarray(centre(want, crop) if crop else want).reshape(*row.shape[1:], channels)
                if not np.array_equal(want.transpose(2, 0, 1), row):
                    differ.append(path)
        print(f"{keys}: {len(differ)} of {sum(plain.values())} differ from Pillow {differ[:5]}")
        wrong += len(differ)
    return wrong


# height, width and channels of a picture, resize, crop, interpolation, channels of the row
TABLES = [
    (7, 9, 3, 5, 4, "bilinear", 3), (7, 9, 3, 5, 4, "bicubic", 3), (9, 7, 3, 20, [3, 5], "bicubic", 3),
    (5, 5, 1, 3, 2, "bilinear", 3), (31, 4, 3, 3, 3, "bilinear", 3), (31, 4, 3, 3, 3, "bicubic", 3),
    (4, 31, 3, 3, [3, 2], "bicubic", 1), (12, 13, 3, [3, 7], None, "bilinear", 3), (12, 13, 1, [7, 3], None, "bicubic", 1),
    (1, 1, 3, 2, 2, "bicubic", 3), (200, 150, 3, 6, 5, "bilinear", 3), (200, 150, 3, 6, 5, "bicubic", 3),
    (40, 40, 3, [4, 40], [2, 9], "bilinear", 1), (6, 6, 3, 6, 6, "bicubic", 3), (8, 1, 3, 2, 2, "bilinear", 3),
]


def made(number, height, width, channels):
    """Returns the picture of a table; test_picture_resize.c makes the same."""
    state, samples = number + 1, bytearray()
    for _ in range(height * width * channels):
        state = (state * 1664525 + 1013904223) % 2**32
        samples.append(state >> 24)
    samples = np.frombuffer(bytes(samples), np.uint8).reshape(height, width, channels)
    return Image.fromarray(samples if channels == 3 else samples[:, :, 0])


def tables():
    """Returns the text of pillow_tables.h."""
    lines = ["/* Pictures that Pillow has resized and cut, made by pictures_as_pillow.py --tables. */",
             "/* clang-format off */", "static const pillow_table tables[] = {"]
    for number, (height, width, channels, to, crop, name, of) in enumerate(TABLES):
        row = resized(made(number, height, width, channels).convert("RGB").convert("RGB" if of == 3 else "L"), to, name)
        row = np.asarray(centre(row, crop) if crop else row)
        row = row.reshape(*row.shape[:2], of).transpose(2, 0, 1)
        size = to if isinstance(to, list) else [to, 0]
        lines.append(f"    {{{height}, {width}, {channels}, {{{of}, {row.shape[1]}, {row.shape[2]}, "
                     f"{{{size[0]}, {size[1]}, LS_PREP_{name.upper()}}}, 0}},")
        numbers = [str(sample) for sample in row.flatten()]
        text = ["     {"]
        for at, number_text in enumerate(numbers):
            more = number_text + (", " if at + 1 < len(numbers) else "}},")
            if len(text[-1]) + len(more.rstrip()) > 98:
                text[-1] = text[-1].rstrip()
                text.append("      ")
            text[-1] += more
        lines += text
    return "\n".join([*lines, "};", "/* clang-format on */"]) + "\n"


def main(trainer):
    if tables() != pathlib.Path(__file__).with_name("pillow_tables.h").read_text():
        print("pillow_tables.h is not what this Pillow computes")
        return 1
    random.seed(3)
    rng = np.random.default_rng(3)
    names = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.mkdir("a")
        os.mkdir("b")
        for i in range(PICTURES):
            ending = random.choice(["png", "png", "jpg", "jpg", "ppm", "bmp"])
            mode = random.choice(["RGB", "L", "RGBA", "P", "1", "I;16", "LA"])
            if ending == "ppm" or (ending == "jpg" and mode != "L") or (ending == "bmp" and mode not in ("L", "P")):
                mode = "RGB"
            if ending == "jpg" and i % 3 == 0:
                mode = "CMYK"
            names.append(f"{'ab'[i % 2]}/{i:03d}.{ending}")
            save(names[-1], mode, rng)
        rows = packed_rows(trainer, ["--size", str(SIDE)])
        far = sorted((float(np.abs(expected(name) - row.astype(int)).mean()), name)
                     for name, row in zip(sorted(names), rows))
        wrong = same_bytes(trainer, names)
        os.chdir("/")
    print(f"mean difference {sum(d for d, _ in far) / len(far):.3f}, greatest {far[-1]}, of 255")
    for ending in ("png", "ppm", "bmp", "jpg"):
        some = [d for d, name in far if name.endswith(ending)]
        print(f"{ending}: {len(some)} pictures, mean {sum(some) / len(some):.3f}, greatest {some[-1]:.3f}")
    return wrong > 0 or far[-1][0] > MOST


if sys.argv[1] == "--tables":
    print(tables(), end="")
else:
    sys.exit(main(os.path.abspath(sys.argv[1])))
