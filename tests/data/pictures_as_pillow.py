#!/usr/bin/env python3
"""Checks that pictures of many sizes, modes and depths are converted in the same way as by Pillow.

    pictures_as_pillow.py TRAINER

Both scale a picture until its shorter side fits, keep its middle, and average pixels with triangular
weights.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from PIL import Image
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


def main(trainer):
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
        subprocess.run([trainer, "pack", ".", "--to", "packed", "--size", str(SIDE), "--quiet"], check=True)
        with open("packed", "rb") as file:
            packed = file.read()
        length = int.from_bytes(packed[:8], "little")
        entry = json.loads(packed[8:8 + length])["x"]
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        rows = np.frombuffer(packed[begin:end], np.uint8).reshape(entry["shape"])
        far = sorted((float(np.abs(expected(name) - row.astype(int)).mean()), name)
                     for name, row in zip(sorted(names), rows))
        os.chdir("/")
    print(f"mean difference {sum(d for d, _ in far) / len(far):.3f}, greatest {far[-1]}, of 255")
    for ending in ("png", "ppm", "bmp", "jpg"):
        some = [d for d, name in far if name.endswith(ending)]
        print(f"{ending}: {len(some)} pictures, mean {sum(some) / len(some):.3f}, greatest {some[-1]:.3f}")
    return far[-1][0] > MOST


sys.exit(main(os.path.abspath(sys.argv[1])))
