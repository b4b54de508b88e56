#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the seeds of the fuzz targets.

    make_corpus.py FOLDER               writes FOLDER/<target>/<name>, and removes other files of a
                                        target
    make_corpus.py --check FOLDER KEPT  fails if FOLDER differs from what would be written now, or
                                        if an input KEPT/<target>/<name>, which a fuzzer found, is
                                        among the seeds

Every run writes the same bytes with one version of zlib.
"""
import base64
import gzip
import io
import json
import shutil
import struct
import sys
import zipfile
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from onnx_bytes import message, onnx_file, onnx_floats, onnx_ints, onnx_node  # noqa: E402

made = {}  # the bytes of each (target, name)


def put(target, name, data):
    assert (target, name) not in made, f"two seeds {target}/{name}"
    made[target, name] = data if isinstance(data, bytes) else data.encode()


def packed(data, **header):
    return gzip.compress(data, 9, mtime=0)


# ---- images of 3×2 pixels ----------------------------------------------------------------------

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(depth, colours, rows, interlaced=0, palette=b"", more=b""):
    header = struct.pack(">IIBBBBB", 3, 2, depth, colours, 0, 0, interlaced)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + (chunk(b"PLTE", palette) if palette else b"")
            + more + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


images = {
    "grey.png": png(8, 0, b"\x01\x0a\x0a\x14\x04\x05\x0a\x14"),
    "bits.png": png(1, 0, b"\0\xa0\0\x40"),
    "deep.png": png(16, 2, bytes(2 * 19)),
    "colours.png": png(8, 2, b"\0AaxBbyCcz\x02DduEevFfw"),
    "alpha.png": png(8, 6, b"\x03Aax.Bby.Ccz.\x04Ddu.Eev.Ffw."),
    "palette.png": png(4, 3, b"\0\x01\x10\0\x10\x10", 0, b"AaxBby", chunk(b"tRNS", b"\0\x80")),
    "interlaced.png": png(8, 0, b"\0a\0c\0b\0def", 1),
    "texts.png": png(8, 0, b"\0abc\0def", 0, b"", chunk(b"tEXt", b"Title\0x")
                     + chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"y" * 40))),
    "grey.pgm": b"P5\n# a comment\n3 2\n255\nabcdef",
    "colours.ppm": b"P6 3 2 15\n" + bytes(range(18)),
    # Of 3×2 pixels, by libjpeg.
    "grey.jpg": base64.b64decode(
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLDAx"
        "NDQ0Hyc5PTgyPC4zNDL/wAALCAACAAMBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAB//EABoQAAEFAQAAAAAAAAAAAAAAAAQAAwU0"
        "dbT/2gAIAQEAAD8AMJ26Nnhcza//2Q=="),
    "colours.jpg": base64.b64decode(
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLDAx"
        "NDQ0Hyc5PTgyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIy"
        "MjIyMjIyMjL/wAARCAACAAMDASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAX/xAAaEAEAAQUAAAAAAAAAAAAAAAAAAgED"
        "MXOy/8QAFQEBAQAAAAAAAAAAAAAAAAAABgf/xAAbEQABBAMAAAAAAAAAAAAAAAAAAQIzcQMEsf/aAAwDAQACEQMRAD8Aiwzc2z6q"
        "AoutAyk4As0jrU//2Q=="),
    "grey_progressive.jpg": base64.b64decode(
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLDAx"
        "NDQ0Hyc5PTgyPC4zNDL/wgALCAACAAMBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAABv/aAAgBAQAAAAEv/8QAFRABAQAAAAAAAAAA"
        "AAAAAAAAAzL/2gAIAQEAAQUCe//EABgQAAIDAAAAAAAAAAAAAAAAAAACAXOy/9oACAEBAAY/AlrTMH//xAAUEAEAAAAAAAAAAAAA"
        "AAAAAAAA/9oACAEBAAE/IQD/2gAIAQEAAAAQ/wD/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/9oACAEBAAE/EHb/2Q=="),
    "colours_progressive.jpg": base64.b64decode(
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLDAx"
        "NDQ0Hyc5PTgyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIy"
        "MjIyMjIyMjL/wgARCAACAAMDASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAT/xAAVAQEBAAAAAAAAAAAAAAAAAAAFBv/a"
        "AAwDAQACEAMQAAABiFEB/8QAFBABAAAAAAAAAAAAAAAAAAAAAP/aAAgBAQABBQJ//8QAFxEAAwEAAAAAAAAAAAAAAAAAAAECMv/a"
        "AAgBAwEBPwG9M//EABcRAAMBAAAAAAAAAAAAAAAAAAABAzL/2gAIAQIBAT8BnhH/xAAWEAADAAAAAAAAAAAAAAAAAAAAAXH/2gAI"
        "AQEABj8CdP/EABYQAQEBAAAAAAAAAAAAAAAAALEAAf/aAAgBAQABPyHEb//aAAwDAQACAAMAAAAQD//EABYRAAMAAAAAAAAAAAAA"
        "AAAAAAABof/aAAgBAwEBPxChn//EABcRAAMBAAAAAAAAAAAAAAAAAAABobH/2gAIAQIBAT8QnWH/xAAXEAADAQAAAAAAAAAAAAAA"
        "AAAAITHw/9oACAEBAAE/ELzY/9k="),
    "print.jpg": base64.b64decode(
        "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwAIBgYHBgUIBwcHCQkICgwUDQwLCwwZEhMPFB0aHx4dGhwcICQuJyAiLCMcHCg3KSwwMTQ0NB8n"
        "OT04MjwuMzQy/8AAFAgAAgADBEMRAE0RAFkRAEsRAP/EABQAAQAAAAAAAAAAAAAAAAAAAAf/xAAiEAADAAIDAAAHAAAAAAAAAAABAgME"
        "BQAGERMUITFBUYH/2gAOBEMATQBZAEsAAD8AZ9Kqw1vwJKJxje0pTQeKiLVlVVH4AAAAH2AA40aZVlhWWahF+cym8UeD03oSf6STxVj1"
        "jr+3bIzdlotZm5b5N1e+TiTo7BasqgswJPigAfoADi/03Itk9G6/e9aVtXW41KUdizOxkpLEn6kkkknn/9k="),
    "lossless.webp": base64.b64decode(
        "UklGRjoAAABXRUJQVlA4TC0AAAAvAkAAAC8gECBIV25DQFB03XICAYJ05eY/QGxybBUoZBsBTu0ekxO6iP7H9AIA"),
    "turned.webp": base64.b64decode(
        "UklGRoIAAABXRUJQVlA4WAoAAAAIAAAAAgAAAQAAVlA4IEIAAACwAQCdASoDAAIAAsBMJagCdAEO/gLsAOJ//DVET8SmI9t1EF/4ee/9"
        "p2f/v/+Tf/0m/a+9i+//yb+xD/ktH0rfgABFWElGGgAAAE1NACoAAAAIAAEBEgADAAAAAQAGAAAAAAAA"),
}
exif = {"<": b"II*\0" + struct.pack("<IHHHIHHI", 8, 1, 0x112, 3, 1, 6, 0, 0),
        ">": b"MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x112, 3, 1, 8, 0, 0)}


def with_exif(jpeg, block):
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 8) + b"Exif\0\0" + block + jpeg[2:]


def bmp(bits, packing, rest, palette=0, height=2):
    pixels = 54 + len(rest) - (3 * bits + 31) // 32 * 4 * 2
    return (b"BM" + struct.pack("<IHHI", 54 + len(rest), 0, 0, pixels)
            + struct.pack("<IiiHHIIiiII", 40, 3, height, 1, bits, packing, 0, 0, 0, palette, 0) + rest)


images |= {
    "turned.jpg": with_exif(images["grey.jpg"], exif["<"]),
    "turned_big.jpg": with_exif(images["colours.jpg"], exif[">"]),
    "turned.png": png(8, 0, b"\0abc\0def", 0, b"", chunk(b"eXIf", exif[">"])),
    "damaged_text.png": png(8, 0, b"\0abc\0def", 0, b"", chunk(b"tEXt", b"Title\0x")[:-1] + b"?"),
    "no_end.jpg": images["grey.jpg"][:-2],
    "colours.bmp": bmp(24, 0, b"uDdvEewFf...xAayBbzCc..."),
    "upside.bmp": bmp(24, 0, b"xAayBbzCc...uDdvEewFf...", 0, -2),
    "masks.bmp": bmp(32, 3, struct.pack("<III", 0xff0000, 0xff00, 0xff) + b"uDd.vEe.wFf.xAa.yBb.zCc."),
    "palette.bmp": bmp(4, 0, b"uDd.vEe.wFf.xAa.yBb.zCc.\x01\x20..\x34\x50..", 6),
    "moving.gif": b"GIF89a\3\0\2\0\0\0\0",
}
for name, data in images.items():
    put("image", name, data)
    put("picture", name, data)

# ---- JSON: what is allowed, and each thing that is not -----------------------------------------

accepted = {
    "values": '{"a": [1, -2.5e3, 0.1E-2, true, false, null, "x"], "b": {}, "c": []}',
    "escapes": r'["\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"]',
    "utf8": '{"é": "ß", "漢": "字", "😀": "𐍈"}',
    "nested": "[" * 12 + "]" * 12,
    "numbers": "[0, -0, 1e308, 5e-324, 123456789012345678901234567890, 1.7976931348623157e308]",
    "spaces": " \t\r\n[ 1 ,\n 2 ] \n",
    "many_keys": json.dumps({f"k{i}": i for i in range(40)}),
    "word": "true",
    "text": '"x"',
}
refused = {
    "twice": '{"a": 1, "b": {"d": 2, "c": 3, "d": 4}}',
    "twice_escaped": r'{"b": 1, "a": 2, "\u0062": 2}',
    "open_string": '["abc',
    "open_list": '{"a": [1, 2',
    "control": '["a\x01b"]',
    "line_in_string": '["a\nb"]',
    "escape": r'["\q"]',
    "hex": r'["\u12g4"]',
    "high_alone": r'["\ud800"]',
    "high_and_text": r'["\ud800\u0041"]',
    "low_alone": r'["\udc00"]',
    "zero_escape": r'["\u0000"]',
    "comma_last": "[1, 2, ]",
    "comma_last_key": '{"a": 1, }',
    "comma_missing": '{"a": 1 "b": 2}',
    "colon_missing": '{"a" 1}',
    "key_bare": "{a: 1}",
    "quotes_single": "['a']",
    "number_zero": "[01]",
    "number_plus": "[+1]",
    "number_dot": "[.5]",
    "number_dot_last": "[1.]",
    "number_exponent": "[1e+]",
    "number_minus": "[-]",
    "number_minus_word": "[-Infinity]",
    "number_large": "[1e999]",
    "number_long": "[" + "1" * 70 + "]",
    "word_nan": "[NaN]",
    "word_python": "[True, None]",
    "word_bare": "[hello]",
    "comment_slash": "[1, // one\n2]",
    "comment_hash": "# x\n[1]",
    "comment_in_object": '{/* x */ "a": 1}',
    "after": "[1] 2",
    "too_deep": "[" * 20 + "]" * 20,
    "too_many": "[" + "1," * 2100 + "1]",
    "empty": "",
    "space": "   ",
    "bom": b"\xef\xbb\xbf[1]",
    "utf16": '[1]'.encode("utf-16"),
    "utf16_big": b"\xfe\xff\x00[",
    "zero_byte": b'["a\x00b"]',
    "latin1": '["é"]'.encode("latin-1"),
    "overlong": b'["\xc0\xaf"]',
    "overlong3": b'["\xe0\x80\xaf"]',
    "overlong4": b'["\xf0\x80\x80\xaf"]',
    "surrogate": b'["\xed\xa0\x80"]',
    "beyond_unicode": b'["\xf4\x90\x80\x80"]',
    "cut_character": b'["\xe6\xbc',
    "cut_character4": b'["\xf0\x9f\x98"]',
    "long_key_twice": '{"' + "ä" * 70 + '": 1, "' + "ä" * 70 + '": 2, "a": 3}',
    "line_key_twice": r'{"a": 0, "b\nb": 1, "b\nb": 2}',
}
for name, text in accepted.items():
    put("json", "ok_" + name, text)
for name, text in refused.items():
    put("json", "bad_" + name, text)

# ---- models ------------------------------------------------------------------------------------


def model(*layers, **more):
    return json.dumps({**more, "layers": list(layers)})


def layer(type, **keys):
    return {"type": type, **keys}


flat = layer("flatten")
dense = layer("dense", out=10)
conv = layer("conv2d", out=4, kernel=3)
same = [
    layer("conv2d", name="c", out="$out", kernel=3, padding=1),
    layer("batch_norm"),
    layer("relu"),
    layer("add", **{"with": "input"}),
]
models = {
    "dense": model(flat, dense),
    "lenet": model(
        layer("conv2d", name="conv1", out=6, kernel=5, padding=2), layer("sigmoid"),
        layer("avg_pool", kernel=2), layer("conv2d", name="conv2", out=16, kernel=5),
        layer("sigmoid"), flat, layer("dense", name="fc1", out=12), layer("tanh"), dense,
        name="lenet"),
    "pools": model(
        layer("max_pool", kernel=[3, 3], stride=2, padding=1), conv,
        layer("global_avg_pool"), dense),
    "dropout": model(flat, layer("dense", out=9, bias=False), layer("dropout", p=0.25), dense),
    "norm": model(conv, layer("batch_norm", epsilon=1e-3, momentum=0.2), layer("relu"),
                  layer("dropout"), flat, dense),
    "branches": model(
        layer("conv2d", name="a", out=2, kernel=1), layer("conv2d", name="b", out=2, kernel=1),
        layer("add", name="s", **{"from": "b", "with": "a"}), flat, dense),
    "blocks": model(
        layer("conv2d", out=4, kernel=1), {"block": "same", "name": "b", "repeat": 2, "out": 4},
        {"block": "same", "out": 4}, layer("add", **{"from": "b", "with": "input_"}), flat, dense,
        blocks={"same": same}).replace(', {"type": "add", "from": "b", "with": "input_"}', ""),
    "block_named": model(
        layer("conv2d", out=2, kernel=1), {"block": "x", "name": "b", "k": 1},
        layer("conv2d", out=2, kernel=1, **{"from": "b"}), flat, dense,
        blocks={"x": [layer("conv2d", out=2, kernel="$k")]}),
}
bad_models = {
    "list": "[1]",
    "no_layers": '{"name": "x"}',
    "layers_object": '{"layers": {}}',
    "layers_empty": '{"layers": []}',
    "name_number": model(dense, name=7),
    "name_long": model(dense, name="n" * 70),
    "layer_number": '{"layers": [3]}',
    "type_missing": model({"out": 10}),
    "type_misspelt": model({"typ": "dense", "out": 10}),
    "type_unknown": model(layer("attention")),
    "type_near": model(layer("conv2", out=1, kernel=1)),
    "key_unknown": model(flat, layer("dense", out=10, units=3)),
    "out_missing": model(flat, layer("dense")),
    "out_zero": model(flat, layer("dense", out=0)),
    "out_huge": model(flat, layer("dense", out=1048576), layer("dense", out=1048576),
                      layer("dense", out=1048576), dense),
    "out_fraction": model(flat, layer("dense", out=1.5)),
    "bias_number": model(flat, layer("dense", out=10, bias=1)),
    "kernel_large": model(layer("conv2d", out=1, kernel=50)),
    "kernel_three": model(layer("conv2d", out=1, kernel=[1, 2, 3])),
    "kernel_text": model(layer("conv2d", out=1, kernel="3")),
    "padding_large": model(layer("max_pool", kernel=2, padding=2), flat, dense),
    "dense_of_image": model(dense),
    "conv_of_vector": model(flat, conv),
    "output_image": model(conv),
    "output_count": model(flat, layer("dense", out=7)),
    "nothing_learnt": model(layer("global_avg_pool")),
    "values_many": model(layer("conv2d", out=1048576, kernel=1, padding=8), flat, dense),
    "name_taken": model(layer("relu", name="a"), layer("relu", name="a"), flat, dense),
    "name_input": model(layer("relu", name="input"), flat, dense),
    "name_odd": model(layer("relu", name="a b"), flat, dense),
    "name_empty": model(layer("relu", name=""), flat, dense),
    "from_later": model(layer("relu", **{"from": "z"}), layer("relu", name="z"), flat, dense),
    "from_self": model(layer("relu", name="z"), layer("relu", name="y", **{"from": "yy"}), dense),
    "from_near": model(layer("relu", name="stem"), layer("relu", **{"from": "sten"}), dense),
    "from_control": model(layer("relu", **{"from": "a\nb\x1b[31m"}), flat, dense),
    "with_missing": model(layer("add"), flat, dense),
    "with_shapes": model(conv, layer("add", **{"with": "input"}), flat, dense),
    "with_flattened": model(layer("relu", name="r"), layer("flatten", name="f"),
                            layer("conv2d", name="c", out=144, kernel=12, **{"from": "r"}),
                            layer("add", **{"with": "f"}), dense),
    "unread": model(layer("relu", name="r"), layer("flatten", **{"from": "input"}), dense),
    "dropout_all": model(flat, layer("dropout", p=1), dense),
    "blocks_list": model(dense, blocks=[]),
    "block_empty": model(dense, blocks={"b": []}),
    "block_number": model(dense, blocks={"b": 3}),
    "block_unused": model(dense, blocks={"b": [dense]}),
    "block_unknown": model({"block": "zzz"}, dense),
    "block_near": model({"block": "same", "out": 4}, {"block": "sam", "out": 4},
                        blocks={"same": same}),
    "block_name": model({"block": 3}, dense),
    "block_in_block": model({"block": "b"}, blocks={"b": [{"block": "b"}]}),
    "block_value": model({"block": "same", "ot": 4}, flat, dense, blocks={"same": same}),
    "block_value_missing": model({"block": "same"}, flat, dense, blocks={"same": same}),
    "block_values_many": model({"block": "b"}, blocks={
        "b": [layer("conv2d", **{f"k{i}": f"$v{i}" for i in range(40)})]}),
    "block_wrong_inside": model({"block": "b", "k": 99}, flat, dense, blocks={
        "b": [layer("conv2d", out=2, kernel="$k")]}),
    "block_key_inside": model({"block": "b"}, flat, dense, blocks={
        "b": [layer("conv2d", out=2, kernel=1, pad=1)]}),
    "block_repeat": model({"block": "b", "repeat": 0}, dense, blocks={"b": [flat]}),
    "block_repeat_most": model({"block": "b", "repeat": 1000}, dense, blocks={"b": [flat]}),
    "block_name_long": model({"block": "b", "name": "n" * 60, "repeat": 9}, dense, blocks={
        "b": [layer("relu", name="m" * 20)]}),
    "layers_many": model(*[layer("relu")] * 130, flat, dense).replace(", ", ","),
}
for name, text in models.items():
    put("model", "ok_" + name, text)
for name, text in bad_models.items():
    put("model", "bad_" + name, text)

# ---- configs -----------------------------------------------------------------------------------


def config(**keys):
    base = {"model": {"layers": [flat, dense]}, "optimizer": {"name": "sgd", "lr": 0.1}}
    base.update(keys)
    return json.dumps({k: v for k, v in base.items() if v is not ...})


adamw = {"name": "adamw", "lr": 0.001, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8,
         "weight_decay": 0.01}
configs = {
    "small": config(),
    "whole": config(
        name="x", data={"name": "mnist", "path": "/x", "limit": 100, "mean": 0.5, "std": [1, 2]},
        devices="cpu:2", threads=2, batch_size=64, shards=4, epochs=3, eval_every=0, seed=7,
        init={"name": "normal", "std": 0.02}, optimizer=adamw, label_smoothing=0.1,
        schedule={"name": "cosine", "warmup_epochs": 1, "minimum": 0.1}, lr_scaling="linear",
        augment={"crop": 4, "flip": True}, capacity=[1, 2.5], gradient_scale="nominal",
        allreduce="ordered", run_dir="out"),
    "words": config(init="xavier", schedule="constant", shards="devices", run_dir=None,
                    capacity=[], data={}),
    "model_beside": config(model="99"),
    "model_file": config(model="/proc/self/fd/99"),
    "faults": config(deadline_s=2.5, verify_every_steps=100, on_device_loss="stop",
                     on_nonfinite="skip", checkpoint={"every_steps": 50, "every_epochs": 0,
                                                      "keep": 3, "async": False}),
    "step": config(init={"name": "kaiming"},
                   schedule={"name": "step", "every_epochs": 2, "gamma": 0.5}),
    "sets": config() + "\0optimizer.lr=0.5\0model.layers.1.out=7\0name=a b\0data.limit=3",
    "set_objects": config() + '\0data={"limit": 2}\0schedule.name="step"\0run_dir=null',
    "capacity_most": config(capacity=[1] * 1024).replace(", ", ","),
    "edges": config(seed=2**53, label_smoothing=1, data={"limit": 2**31 - 1, "std": 1e-6},
                    batch_size=1 << 20, shards=65536, augment={"crop": 64}),
}
bad_configs = {
    "empty": "",
    "list": "[]",
    "model_missing": config(model=...),
    "optimizer_missing": config(optimizer=...),
    "model_file": config(model="no_such_file.json"),
    "model_directory": config(model="/"),
    "checkpoint": config(checkpoint=3),
    "checkpoint_keep": config(checkpoint={"keep": 0}),
    "deadline": config(deadline_s=-1),
    "on_device_loss": config(on_device_loss="go on"),
    "on_nonfinite": config(on_nonfinite="skp"),
    "model_path_long": config(model="x" * 4200),
    "key_unknown": config(batchsize=3),
    "key_far": config(zzzzzzzzzz=3),
    "name_slash": config(name="a/b"),
    "name_empty": config(name=""),
    "name_control": config(name="a/\n\x7f"),
    "data_number": config(data=3),
    "data_key": config(data={"nme": "x"}),
    "limit_negative": config(data={"limit": -1}),
    "mean_five": config(data={"mean": [1, 2, 3, 4, 5]}),
    "mean_empty": config(data={"mean": []}),
    "mean_text": config(data={"mean": "x"}),
    "std_zero": config(data={"std": 0}),
    "std_element": config(data={"std": [1, None]}),
    "augment_number": config(augment=1),
    "augment_flip": config(augment={"flip": 1}),
    "capacity_number": config(capacity=3),
    "capacity_negative": config(capacity=[1, -1]),
    "capacity_text": config(capacity=["x"]),
    "capacity_many": config(capacity=[1] * 1030).replace(", ", ","),
    "shards_word": config(shards="many"),
    "shards_zero": config(shards=0),
    "seed_fraction": config(seed=1.5),
    "seed_negative": config(seed=-1),
    "allreduce": config(allreduce="ordred"),
    "gradient_scale": config(gradient_scale="none"),
    "run_dir": config(run_dir=3),
    "epochs_text": config(epochs="ten"),
    "smoothing": config(label_smoothing=1.5),
    "init_number": config(init=3),
    "init_near": config(init="xavir"),
    "init_far": config(init="zeros"),
    "init_std": config(init={"name": "xavier", "std": 1}),
    "optimizer_text": config(optimizer="sgd"),
    "optimizer_name": config(optimizer={"name": "adam", "lr": 1}),
    "optimizer_lr": config(optimizer={"name": "sgd"}),
    "optimizer_beta": config(optimizer={"name": "adamw", "lr": 1, "beta1": 1}),
    "schedule_text": config(schedule="linear"),
    "schedule_key": config(schedule={"name": "constant", "gamma": 0.5}),
    "schedule_steps": config(schedule={"name": "exponential", "minimum": 1e-3, "steps": 1}),
    "schedule_gamma": config(schedule={"name": "step", "gamma": 2}),
    "set_no_value": config() + "\0name",
    "set_no_key": config() + "\0a..b=1",
    "set_deep": config() + "\0" + "a." * 80 + "b=1",
    "set_through": config() + "\0name.x=1",
    "set_through_list": config() + "\0model.layers.9.out=1",
    "set_index": config() + "\0model.layers.x.out=1",
    "set_json": config() + "\0data={",
    "set_utf8": config().encode() + b"\0name=\xff\xfe",
    "set_wrong": config() + "\0batch_size=x",
    "set_made": config() + "\0data.a.b.c=1",
}
for name, text in configs.items():
    put("config", "ok_" + name, text)
for name, text in bad_configs.items():
    put("config", "bad_" + name, text)

# ---- datasets: switches, length of the first file, first file, second file -----------------------


def pair(first, second, switches=0, length=None):
    return struct.pack("<BH", switches, len(first) if length is None else length) + first + second


def images(rows=3, height=2, width=2, magic=0x803, data=None):
    body = bytes(i * 37 & 255 for i in range(rows * height * width)) if data is None else data
    return struct.pack(">IIII", magic, rows, height, width) + body


def labels(values=(0, 9, 4), rows=None, magic=0x801):
    return struct.pack(">II", magic, len(values) if rows is None else rows) + bytes(values)


gz_images, gz_labels = packed(images()), packed(labels())
idx = {
    "ok_plain": pair(images(), labels()),
    "ok_limit": pair(images(), labels(), 1 << 2),
    "ok_gzip": pair(images(), labels(), 3),
    "ok_gzip_limit": pair(images(), labels(), 3 | 2 << 2),
    "ok_packed": pair(gz_images, gz_labels),
    "ok_packed_labels": pair(images(), gz_labels),
    "ok_members": pair(packed(images()[:9]) + packed(images()[9:]), labels()),
    "ok_named": pair(gz_images[:3] + b"\x08" + gz_images[4:10] + b"name\0" + gz_images[10:],
                     labels()),
    "ok_many": pair(images(600, 1, 1), labels([i % 10 for i in range(600)]), 1 << 2),
    "ok_chunks": pair(packed(images(9000, 1, 1, data=bytes(9000))), packed(labels(bytes(9000))),
                      1 << 2),
    "ok_ratio": pair(packed(images(1, 300, 300, data=bytes(90000))), labels([1])),
    "bad_limit": pair(images(1), labels([0]), 3 << 2),
    "bad_empty": pair(b"", labels()),
    "bad_empty_labels": pair(images(), b""),
    "bad_short_header": pair(images()[:9], labels()),
    "bad_short_labels_header": pair(images(), labels()[:5]),
    "bad_swapped": pair(labels(), images()),
    "bad_magic": pair(images(magic=0x903), labels()),
    "bad_labels_magic": pair(images(), labels(magic=0x901)),
    "bad_labels_swapped": pair(images(), images()),
    "bad_no_rows": pair(images(0), labels([])),
    "bad_no_height": pair(images(3, 0, 2), labels()),
    "bad_width": pair(images(1, 1, 4097), labels([1])),
    "bad_promise": pair(images(rows=3)[:4] + b"\xff\xff\xff\xff" + images()[8:], labels()),
    "bad_promise_packed": pair(packed(images()[:4] + b"\0\x01\0\0" + images()[8:]), labels()),
    "bad_promise_labels": pair(images(200, 1, 1), labels(bytes(20), 200)),
    "bad_count": pair(images(), labels([1, 2])),
    "bad_label": pair(images(), labels([1, 11, 2])),
    "bad_label_beyond_limit": pair(images(), labels([1, 2, 200]), 1 << 2),
    "bad_cut": pair(images()[:-1], labels()),
    "bad_cut_gzip": pair(images()[:-1], labels(), 1),
    "bad_cut_labels": pair(images(), labels()[:-1], 2),
    "bad_more": pair(images() + b"x", labels()),
    "bad_more_gzip": pair(images() + b"x", labels(), 1),
    "bad_more_labels": pair(images(), labels() + b"x"),
    "bad_packed_cut": pair(gz_images[:-9], labels()),
    "bad_packed_check": pair(gz_images[:-6] + b"\0" + gz_images[-5:], labels()),
    "bad_packed_more": pair(gz_images + b"x", labels()),
    "bad_packed_member": pair(gz_images + b"\x1f\x8b", labels()),
    "bad_packed_method": pair(gz_images[:2] + b"\x09" + gz_images[3:], labels()),
    "bad_packed_data": pair(gz_images[:14] + b"\xff\xff\xff" + gz_images[17:], labels()),
}
for name, data in idx.items():
    put("idx", name, data)


def record(label=3, start=0):
    return bytes([label]) + bytes(((i >> 6) + start) & 255 for i in range(3072))


cifar = {
    "ok_plain": pair(record(9), record(0, 1)),
    "ok_gzip": pair(record(), record(9, 1), 3),
    "ok_limit": pair(record(), record(), 1 << 2),
    "ok_packed": pair(packed(record()), packed(record(1))),
    "bad_limit": pair(record(), record(), 3 << 2),
    "bad_empty": pair(b"", record()),
    "bad_short": pair(record()[:9], record()),
    "bad_short_packed": pair(packed(record()[:-1]), record()),
    "bad_label": pair(record(12), record()),
    "bad_label_test": pair(record(), record(255)),
    "bad_more": pair(record() + b"x", record()),
    "bad_more_packed": pair(packed(record()), packed(record() * 2)),
    "bad_cut_packed": pair(packed(record())[:-5], record()),
}
for name, data in cifar.items():
    put("cifar", name, data)

# ---- safetensors, for the model of fuzz_safetensors.c ------------------------------------------

shapes = {"c.weight": [2, 1, 2, 2], "c.bias": [2], "n.weight": [2], "n.bias": [2],
          "n.running_mean": [2], "n.running_var": [2], "d.weight": [3, 8], "d.bias": [3]}


def count(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def tensors(dtype="F32", width=4, prefix="", order=None, edit=None, meta=True, tail=b"",
            text=None, length=None):
    header = {"__metadata__": {"format": "pt"}} if meta else {}
    at = 0
    for name in shapes if order is None else order:
        n = count(shapes[name]) * width
        header[prefix + name] = {"dtype": dtype, "shape": shapes[name],
                                 "data_offsets": [at, at + n]}
        at += n
    if edit:
        edit(header)
    out = (json.dumps(header, separators=(",", ":")) if text is None else text).encode()
    out += b" " * (-len(out) % 8)
    data = b"".join(struct.pack("<f", i * 0.25 - 3)[-width:] for i in range(at // width))
    return struct.pack("<Q", len(out) if length is None else length) + out + data + tail


def change(name, key, value):
    def edit(header):
        header[name][key] = value
    return edit


def groups(*prefixes):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for prefix in prefixes:
        for name, shape in shapes.items():
            if "running" not in name:
                n = count(shape) * 4
                header[prefix + name] = {"dtype": "F32", "shape": shape,
                                         "data_offsets": [at, at + n]}
                at += n
    return tensors(text=json.dumps(header, separators=(",", ":")), tail=bytes(at), order=[])


whole = tensors()
weights = {
    "ok_f32": whole,
    "ok_f16": tensors("F16", 2),
    "ok_gradients": tensors(prefix="grad."),
    "ok_reordered": tensors(order=list(shapes)[::-1], meta=False),
    "ok_more": tensors(edit=lambda h: h.update(
        x={"dtype": "I8", "shape": [2], "data_offsets": [176, 178]}), tail=b"ab"),
    "ok_groups": groups("m.", "v."),
    "bad_groups_same": groups("m.", "m."),
    "bad_empty": b"",
    "bad_short": whole[:5],
    "bad_length_zero": tensors(length=0),
    "bad_length_large": tensors(length=1 << 40),
    "bad_length_longer": tensors(length=len(whole)),
    "bad_cut": whole[:-1],
    "bad_more": whole + b"more",
    "bad_json": whole.replace(b'"F32"', b'"F32 ', 1),
    "bad_list": tensors(text="[]"),
    "bad_entry": tensors(edit=lambda h: h.update(x=3)),
    "bad_dtype": tensors(edit=change("c.bias", "dtype", "BF16")),
    "bad_dtype_number": tensors(edit=change("c.bias", "dtype", 3)),
    "bad_shape": tensors(edit=change("c.bias", "shape", [3])),
    "bad_rank": tensors(edit=change("c.bias", "shape", [1, 2])),
    "bad_shape_number": tensors(edit=change("c.bias", "shape", 2)),
    "bad_shape_negative": tensors(edit=change("c.bias", "shape", [-2])),
    "bad_width": tensors(edit=change("c.bias", "dtype", "F16")),
    "bad_offsets": tensors(edit=change("c.bias", "data_offsets", [40, 32])),
    "bad_offsets_three": tensors(edit=change("c.bias", "data_offsets", [32, 36, 40])),
    "bad_offsets_text": tensors(edit=change("c.bias", "data_offsets", "32")),
    "bad_offsets_fraction": tensors(edit=change("c.bias", "data_offsets", [32, 39.5])),
    "bad_offsets_far": tensors(edit=change("d.bias", "data_offsets", [164, 1e18])),
    "bad_gap": tensors(edit=change("c.bias", "data_offsets", [36, 40])),
    "bad_missing": tensors(edit=lambda h: h.update(y=h.pop("d.bias"))),
}
for name, data in weights.items():
    put("safetensors", name, data)

# ---- the state of a checkpoint -----------------------------------------------------------------

state = {
    "schema": 2,
    "position": {"steps": 16, "epoch": 2, "step": 0, "recorded": False, "loss": 0.5, "correct": 3,
                 "rows": 64, "seconds": 0.25, "trained_s": 1.5,
                 "best": {"metric": "loss", "value": 0.25, "epoch": 1, "steps": 8, "waited": 1, "kept": 8}},
    "epochs": 2, "test_loss": None, "test_accuracy": 0.5, "metric": "accuracy", "test_metric": 0.5,
    "metrics": {"bytes": 900, "lines": 7, "sum": 3107325137, "moment": 536178725},
    "shards": 8, "instruction_set": "avx2", "library": "none", "train_rows": 2048,
    "test_rows": 100, "data_crc32": 1389677512,
    "recipe": {"data": {"name": "synthetic", "limit": 2048}, "batch_size": 64, "seed": 3,
               "model": {"layers": [{"type": "dense", "out": 10}]},
               "optimizer": {"name": "adamw", "lr": 0.1}, "schedule": {"name": "cosine"},
               "augment": {"crop": 2}, "shards": 8, "epochs": 4},
}


def changed(value, *path, of=state):
    out = json.loads(json.dumps(of))
    place = out
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(out)


old = json.loads(json.dumps(state))  # before there were a best and other metrics
for place, key in ((old, "metric"), (old, "test_metric"), (old["position"], "best")):
    del place[key]
states = {
    "ok": json.dumps(state),
    "ok_old": json.dumps(old),
    "ok_finished": changed(True, "position", "recorded"),
    "ok_best_of_none": changed(None, "position", "best"),
    "bad_schema": changed(1, "schema"),
    "bad_steps": changed(1.5, "position", "steps"),
    "bad_rows": changed(-1, "train_rows"),
    "bad_shards": changed(0, "shards"),
    "bad_key": changed(1, "more"),
    "bad_position": changed([], "position"),
    "bad_metrics": changed(3, "metrics"),
    "bad_lines": changed(0.5, "metrics", "lines"),
    "bad_recipe": changed([], "recipe"),
    "bad_recipe_key": changed(1, "recipe", "colour"),
    "bad_recipe_seed": changed(-1, "recipe", "seed"),
    "bad_isa": changed(7, "instruction_set"),
    "no_position": json.dumps({key: state[key] for key in state if key != "position"}),
    "no_metrics": json.dumps({key: state[key] for key in state if key != "metrics"}),
    "no_recipe": json.dumps({key: state[key] for key in state if key != "recipe"}),
    "bad_metric": changed("confusion", "metric"),
    "bad_metric_name": changed("acuracy", "metric"),
    "bad_metric_kind": changed({}, "metric"),
    "bad_test_metric": changed("0.5", "test_metric"),
    "bad_best": changed({}, "position", "best"),
    "bad_best_value": changed(None, "position", "best", "value"),
}
for name, data in states.items():
    put("state", name, data)

# ---- how rows are prepared ---------------------------------------------------------------------

prepared = {
    "table": {"version": 1, "rows": "table", "target": "y", "columns": [
        {"name": "a", "mean": 4.1, "deviation": 0.7, "clip": 2, "missing": 4},
        {"name": "b", "levels": ["9", "x"], "missing": 0}, {"name": "c"}]},
    "commas": {"version": 1, "rows": "table", "target": "y", "target_decimal": ",", "encoding": "latin-1", "columns": [
        {"name": "a", "decimal": ","}, {"name": "b", "levels": ["9", "x"]}, {"name": "c", "decimal": "."}]},
    "dates": {"version": 3, "rows": "table", "columns": [
        {"name": "a", "date": "dmy", "since": 19723, "parts": [
            {"part": "year", "mean": 2021, "deviation": 1.5, "clip": 2, "missing": 2021}, {"part": "days", "missing": 300}]},
        {"name": "b", "levels": ["9", "x"], "missing": 0}]},
    "images": {"version": 1, "rows": "images", "fit": "cover"},
    "floats": {"version": 1, "rows": "array", "type": "f32", "divisor": 1, "missing": [1, 2, 3, 4]},
    "limited": {"version": 7, "rows": "array", "type": "f64", "divisor": 1, "mean": [0, 4.1, 2, 9],
        "deviation": [1, 0.7, None, 3], "clip": 2},
    "fewer": {"version": 1, "rows": "array", "type": "f32", "divisor": 1, "missing": [1, 2, 3]},
    "one": {"version": 1, "rows": "array", "divisor": 1, "missing": 0},
    "bytes": {"version": 1, "rows": "array", "type": "u8", "divisor": 255},
    "last": {"version": 1, "rows": "array", "type": "u8", "divisor": 255, "layout": "channels_last"},
}
for name, data in prepared.items():
    put("prep", name, json.dumps(data))
for name, text in {
    "ok": "c,y,b,a,more\n1,no,x,4,?\n-2.5,yes,9.0,,\"a,b\"\n",
    "no_target": "a,b,c\n1,9,2\n",
    "cut": "a,b,c,y\n1,9,2,no\n1,9,2\n",
    "column": "a,b,y\n1,9,no\n",
    "level": "a,b,c,y\n1,z,2,no\n",
    "class": "a,b,c,y\n1,x,2,perhaps\n",
    "number": "a,b,c,y\n1,x,2e999,no\n",
    "commas": "a;b;c;y\n1,5;x;1.234,5;no\n-;9,0;2;yes\n",
    "point": "a;b;c;y\n1.5;x;2.5;no\n",
    "either": "a\tb\tc\ty\n1,234\tx\t1,234\tno\n",
    "latin": "a,b,c,y,Z\xfcrich\n1,x,2,no,\xfc\n".encode("latin-1"),
    "utf16": "a,b,c,y\n1,x,2,no\n".encode("utf-16"),
    "date": "a,b,c,y\n2013-01-02,x,12%,no\n",
}.items():
    put("new_rows", name, text)

# ---- the card of a model -----------------------------------------------------------------------

card = {
    "schema": 1, "input": [1, 4, 4], "floats": False, "classes": 3, "targets": False,
    "class_names": ["boot", "größer", ""], "features": ["a", "b"],
    "recipe": {"data": {"name": "synthetic", "mean": [0.5], "std": [0.25]}, "label_smoothing": 0.125,
               "class_weights": [1, 2, 0.5], "loss": "cross_entropy",
               "model": {"layers": [{"type": "conv2d", "out": 2, "kernel": 3}, {"type": "relu"}, {"type": "flatten"},
                                    {"type": "dense", "out": 3}]}},
}
plain = {key: card[key] for key in card if key not in ("class_names", "features")}
vector = {"model": {"layers": [{"type": "dense", "out": 3}]}}
cards = {
    "ok": json.dumps(card),
    "bad_preparation": json.dumps({**card, "preparation": {"version": 1, "rows": "images"}}),
    "ok_plain": json.dumps(plain),
    "ok_numbers": json.dumps({**plain, "input": [7, 1, 1], "floats": True, "targets": True,
                              "recipe": {**vector, "loss": "mse"}}),
    "ok_builtin": json.dumps({**plain, "input": [1, 28, 28], "classes": 10, "recipe": {"model": "lenet"}}),
    "bad_schema": changed(2, "schema", of=card),
    "bad_key": changed(1, "more", of=card),
    "bad_input": changed([1, 4], "input", of=card),
    "bad_side": changed([1, 0, 4], "input", of=card),
    "bad_half": changed([1, 4.5, 4], "input", of=card),
    "bad_sides": changed([1 << 20] * 3, "input", of=card),
    "bad_kernel": changed([1, 2, 2], "input", of=card),
    "bad_classes": changed(0, "classes", of=card),
    "bad_names": changed(["a", "b"], "class_names", of=card),
    "bad_name": changed(["a", 1, "c"], "class_names", of=card),
    "bad_features": changed("a", "features", of=card),
    "bad_floats": changed(0, "floats", of=card),
    "bad_targets": changed(True, "targets", of=card),
    "bad_recipe": changed(3, "recipe", of=card),
    "bad_recipe_key": changed(3, "recipe", "colour", of=card),
    "bad_mean": changed([0.5, 0.5], "recipe", "data", "mean", of=card),
    "bad_model": changed(3, "recipe", "model", of=card),
    "bad_layer": changed("conv3d", "recipe", "model", "layers", 0, "type", of=card),
    "no_recipe": json.dumps({key: card[key] for key in card if key != "recipe"}),
    "no_object": "[]",
}
for name, data in cards.items():
    put("card", name, data)

# ---- arrays: .npy, and safetensors with tensors x and y ----------------------------------------


def npy(text, data, version=1):
    size = struct.pack("<H" if version == 1 else "<I", len(text) + 1)
    return b"\x93NUMPY" + bytes((version, 0)) + size + text.encode() + b"\n" + data


def dictionary(descr, shape, order="False"):
    return f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}"


def tensors(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def npz(deflated, **members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            with archive.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=True) as file:
                file.write(data)
    return packed.getvalue()


rows, classes = npy(dictionary("|u1", "(2, 3)"), b"abcdef"), npy(dictionary("<f4", "(2,)"), struct.pack("<2f", 0, 1))
arrays = {
    "pair.npz": npz(False, x=rows, y=classes),
    "deflated.npz": npz(True, x_train=rows, y_train=classes, x_test=rows, y_test=classes),
    "encrypted.npz": npz(False, x=rows, y=classes).replace(b"PK\1\2\x2d\3\x2d\0\0", b"PK\1\2\x2d\3\x2d\0\1"),
    "none.npz": npz(False, a=rows, b=classes),
    "one_hot.npy": npy(dictionary("<f4", "(2, 2)"), struct.pack("<4f", 0, 1, 1, 0)),
    "from_1.npy": npy(dictionary("<i4", "(3,)"), struct.pack("<3i", 1, 3, 2)),
    "last.npy": npy(dictionary("|u1", "(1, 2, 2, 3)"), b"abcdefghijkl"),
    "bytes.npy": npy(dictionary("|u1", "(2, 3)"), b"abcdef"),
    "labels.npy": npy(dictionary("<i8", "(3,)"), struct.pack("<3q", 0, 2, 1)),
    "numbers.npy": npy(dictionary("<i4", "(2, 1, 2)"), struct.pack("<4i", -1, 2, 3, 4)),
    "floats.npy": npy(dictionary("<f4", "(2, 2)"), struct.pack("<4f", 1, 2, float("nan"), 4)),
    "doubles.npy": npy(dictionary("<f8", "(1, 1, 1, 2)"), struct.pack("<2d", 0.5, -1e300)),
    "bits.npy": npy(dictionary("|b1", "(2, 2)"), b"\0\1\1\0", 2),
    "third.npy": npy(dictionary("|u1", "(1,)"), b"x", 3),
    "fortran.npy": npy(dictionary("|u1", "(2, 3)", "True"), b"abcdef"),
    "large.npy": npy(dictionary("<f8", "(4294967296, 536870912)"), b""),
    "cut.npy": npy(dictionary("|u1", "(2, 4)"), b"abcdef"),
    "pair.safetensors": tensors({"x": tensor("F32", [2, 2], 0, 16), "y": tensor("I64", [2], 16, 32)},
                                struct.pack("<4f2q", 1, 2, 3, 4, 0, 1)),
    "named.safetensors": tensors({"__metadata__": {"class_names": '["a","b"]', "sha256": "0" * 64},
                                  "x": tensor("U8", [2, 3], 0, 6), "y": tensor("U8", [2], 6, 8)}, b"abcdef\0\1"),
    "tests.safetensors": tensors({k: tensor("U8", [2, 1], i, i + 2) for i, k in
                                  enumerate(("x", "y", "test_x", "test_y"))}, b"\0\1\0\1\0"),
    "beyond.safetensors": tensors({"x": tensor("U8", [2, 3], 0, 7), "y": tensor("U8", [2], 0, 2)}, b"abcdef"),
}
for name, data in arrays.items():
    put("arrays", name, data)

# ---- tables whose target is y ------------------------------------------------------------------

tables = {
    "numbers": "a,b,y\n1,2.5,0\n-3e2,.5,1\n",
    "texts": 'a,y\nred,u\n"bl""ue",v\r\nred,u',
    "quotes": '"a, b","y"\n"1","x\ny"\n2,z\n',
    "missing": "a,b,y\n,x,1\n2,?,2\nNA,x,3\n",
    "mark": "\xef\xbb\xbfa,y\n1,2\n2,3\n".encode("latin-1"),
    "blanks": "\n a , y \n 1 , u \n\n2,v\n",
    "short": "a,b,y\n1,2,3\n4,5\n",
    "long": "a,y\n1,2\n3,4,5\n",
    "open_quote": 'a,y\n1,"2\n3,4\n',
    "behind_quote": 'a,y\n1,"2"3\n',
    "infinite": "a,y\n1e999,1\n2,2\n",
    "words": "a,y\n1,1\nx,2\n",
    "twice": "a,a,y\n1,2,3\n",
    "no_target": "a,b\n1,2\n",
    "no_rows": "a,y\n",
    "zero": b"a,y\n1\0,2\n",
    "semicolons": "a;b;y\n1,5;2;u\n1.234,5;3;v\n",
    "tabs": "a\ty\n1\tu\n2\tv\n",
    "blanks_between": "a  b y\n 1 2  0\n3 4 1 \n",
    "dialect": "sep=|\r\na|y\r\n1|2\r\n3|4\r\n",
    "either": 'a,y\n"1,234",0\n"5,5",1\n',
    "late": "a;y\n1.234;0\n5,25;1\n-;0\n",
    "thousands": "a;y\n1'234'567;0\n1\u00a0234,5;1\n12,345,678;0\n",
    "words_first": "a,b,y\n-,None,1\n1,-,2\ninf,x,3\n",
    "index": ",a,y\n0,5,1\n1,6,2\n",
    "date": "a,y\n2013-01-02,1\n",
    "percent": "a,y\n1,1\n12%,2\n",
    "equal": "a,y\n1,1\n2,1.0\n3,01\n4,2\n",
    "row_names": "a,y\nr1,1,2\nr2,3,4\n",
    "latin": "a,y\nZ\xfcrich,1\nBern,2\n".encode("latin-1"),
    "utf16": "a,y\n1,x\n2,\U0001f600\n".encode("utf-16"),
    "utf16_big": b"\xfe\xff" + "a,y\n1,x\n2,z\n".encode("utf-16-be"),
    "gzip": gzip.compress(b"a,y\n1,2\n3,4\n", mtime=0),
    "exponents": "a,y\n1e22,1\n123456789012345678e-25,2\n.5,3\n5.,4\n0.30000000000000004,5\n",
}
for name, data in tables.items():
    put("csv", name, data)

# ---- onnx: protocol buffers ---------------------------------------------------------------------


onnx_head = [onnx_node("Flatten", ["h"], "f", axis=1),
             onnx_node("Gemm", ["f", "fc.weight", "fc.bias"], "y", transB=1, alpha=1.0)]
onnx_fc = [onnx_floats("fc.weight", 3, 32), onnx_floats("fc.bias", 3)]
onnx_conv = [onnx_node("Conv", ["x", "c.weight", "c.bias"], "a", kernel_shape=[3, 3],
                       pads=[1, 1, 1, 1], strides=[1, 1], group=1),
             onnx_node("BatchNormalization", ["a", "s", "b", "m", "v"], "b1", epsilon=1e-5),
             onnx_node("Relu", ["b1"], "c"), onnx_node("MaxPool", ["c"], "h", kernel_shape=[1, 1])]
onnx_norm = [onnx_floats(name, 2) for name in ("s", "b", "m", "v")]
graphs = {
    "conv": onnx_file(onnx_conv + onnx_head, onnx_fc + onnx_norm + [
        onnx_floats("c.weight", 2, 2, 3, 3), onnx_floats("c.bias", 2)], license="MIT"),
    "grouped": onnx_file([onnx_node("Conv", ["x", "c.weight"], "h", auto_pad="SAME_UPPER", group=2)]
                         + onnx_head, onnx_fc + [onnx_floats("c.weight", 2, 1, 3, 3)]),
    "half": onnx_file([onnx_node("Cast", ["x"], "h", to=10)] + onnx_head,
                      [onnx_floats("fc.weight", 3, 32, form="half"),
                       onnx_floats("fc.bias", 3, form="words")]),
    "swish": onnx_file([
        onnx_node("Constant", [], "3", value=onnx_floats("t", 1, form="list")),
        onnx_node("Add", ["x", "three"], "a"), onnx_node("Clip", ["a", "zero", "six"], "b"),
        onnx_node("Mul", ["x", "b"], "c"), onnx_node("Div", ["c", "six"], "h")] + onnx_head,
        onnx_fc + [message((2, 1), (8, n), (4, struct.pack("<f", v)))
                   for n, v in (("three", 3), ("zero", 0), ("six", 6))]),
    "gelu": onnx_file([
        onnx_node("Mul", ["x", "r"], "a"), onnx_node("Erf", ["a"], "b"),
        onnx_node("Add", ["b", "one"], "c"), onnx_node("Mul", ["x", "c"], "d"),
        onnx_node("Mul", ["d", "half"], "h")] + onnx_head,
        onnx_fc + [message((2, 1), (8, n), (9, struct.pack("<f", v)))
                   for n, v in (("r", 0.70710678), ("one", 1), ("half", 0.5))]),
    "norm": onnx_file([
        onnx_node("ReduceMean", ["x"], "m", axes=[1, 2, 3]), onnx_node("Sub", ["x", "m"], "c"),
        onnx_node("Pow", ["c", "two"], "q"), onnx_node("ReduceMean", ["q"], "v", axes=[1, 2, 3]),
        onnx_node("Add", ["v", "e"], "a"), onnx_node("Sqrt", ["a"], "d"), onnx_node("Div", ["c", "d"], "n"),
        onnx_node("Mul", ["n", "ln.weight"], "s"), onnx_node("Add", ["s", "ln.bias"], "b"),
        onnx_node("Dropout", ["b", "e", "off"], "o"),
        onnx_node("AveragePool", ["o"], "h", kernel_shape=[1, 1], ceil_mode=1, count_include_pad=1)] + onnx_head,
        onnx_fc + [onnx_floats("ln.weight", 2, 4, 4), onnx_floats("ln.bias", 2, 4, 4)] +
        [message((2, 1), (8, n), (4, struct.pack("<f", v))) for n, v in (("two", 2), ("e", 1e-3), ("off", 0))], opset=13),
    "cubic": onnx_file([
        onnx_node("Pow", ["x", "three"], "a"), onnx_node("Mul", ["a", "small"], "b"),
        onnx_node("Add", ["x", "b"], "c"), onnx_node("Mul", ["c", "root"], "d"),
        onnx_node("Tanh", ["d"], "e"), onnx_node("Add", ["e", "one"], "f0"),
        onnx_node("Mul", ["f0", "x"], "g"), onnx_node("Mul", ["g", "half"], "i"),
        onnx_node("Clip", ["i", "", "one"], "h")] + onnx_head,
        onnx_fc + [message((2, 1), (8, n), (9, struct.pack("<f", v))) for n, v in (
            ("three", 3), ("small", 0.044715), ("root", 0.79788458), ("one", 1), ("half", 0.5))]),
    "turned": onnx_file([
        onnx_node("Reshape", ["ends", "pairs"], "a"),
        onnx_node("Slice", ["a", "last", "before", "zero", "last"], "b"),
        onnx_node("Transpose", ["b"], "c", perm=[1, 0]), onnx_node("Reshape", ["c", "last"], "d"),
        onnx_node("Pad", ["x", "d"], "p"),
        onnx_node("Conv", ["p", "c.weight"], "k", pads=[0, 1, 0, 0]),
        onnx_node("MaxPool", ["k"], "m", kernel_shape=[2, 2], pads=[0, 0, 1, 1]),
        onnx_node("GlobalAveragePool", ["m"], "r"), onnx_node("Flatten", ["r"], "v", axis=1),
        onnx_node("Gemm", ["v", "w"], "y")],
        [onnx_ints("ends", [0, 1, 0, 1, 0, 0, 0, 0]), onnx_ints("pairs", [-1, 2]),
         onnx_ints("zero", [0]), onnx_ints("last", [-1]), onnx_ints("before", [-2 ** 63 + 1]),
         onnx_floats("c.weight", 2, 2, 3, 3), onnx_floats("w", 2, 3)]),
    "shapes": onnx_file([
        onnx_node("Shape", ["x"], "s"), onnx_node("Gather", ["s", "i"], "n", axis=0),
        onnx_node("Unsqueeze", ["n0", "i"], "u"),
        onnx_node("Concat", ["n", "rest"], "to", axis=0), onnx_node("Reshape", ["x", "to"], "f"),
        onnx_node("MatMul", ["f", "w"], "p"), onnx_node("Add", ["p", "fc.bias"], "q"),
        onnx_node("Softmax", ["q"], "y", axis=-1)],
        [onnx_ints("i", [0]), onnx_ints("rest", [-1], packed=True), onnx_floats("w", 32, 3),
         onnx_floats("fc.bias", 3)]),
    "sliced": onnx_file([
        onnx_node("Slice", ["none", "by", "by", "i", "by"], "p"), onnx_node("Cast", ["p"], "q", to=7),
        onnx_node("ConstantOfShape", ["one"], "r", value=onnx_ints("t", [32])),
        onnx_node("Slice", ["rest", "i", "one"], "s"),
        onnx_node("Concat", ["q", "s", "r"], "to", axis=0), onnx_node("Reshape", ["x", "to"], "f"),
        onnx_node("Transpose", ["w"], "t", perm=[1, 0]), onnx_node("MatMul", ["f", "t"], "y")],
        [message((1, 0), (2, 7), (8, "none")), onnx_ints("i", [0]), onnx_ints("one", [1]),
         onnx_ints("by", [-1]), onnx_ints("rest", [-1, 7]), onnx_floats("w", 3, 32)]),
    "branches": onnx_file([
        onnx_node("GlobalAveragePool", ["x"], "g"), onnx_node("Sigmoid", ["g"], "s"),
        onnx_node("Mul", ["x", "s"], "m"), onnx_node("Concat", ["m", "x", "m"], "k", axis=1),
        onnx_node("ReduceMean", ["k"], "r", axes=[2, 3], keepdims=0),
        onnx_node("Gemm", ["r", "w"], "y")], [onnx_floats("w", 6, 3)]),
    "padded": onnx_file([
        onnx_node("Pad", ["x", "pads"], "p", mode="constant"),
        onnx_node("AveragePool", ["p"], "a", kernel_shape=[3, 3], strides=[1, 1], ceil_mode=1),
        onnx_node("Resize", ["a", "", "scales"], "b", mode="nearest",
                  coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        onnx_node("Transpose", ["w"], "wt", perm=[1, 0]), onnx_node("Flatten", ["b"], "f"),
        onnx_node("MatMul", ["f", "wt"], "y")],
        [onnx_ints("pads", [0, 0, 1, 1, 0, 0, 1, 1]), onnx_floats("w", 3, 128),
         message((1, 4), (2, 1), (8, "scales"), (9, struct.pack("<4f", 1, 1, 2, 2)))]),
    "scaled": onnx_file([onnx_node("Sub", ["x", "m"], "a"), onnx_node("Div", ["a", "d"], "h")]
                        + onnx_head, onnx_fc + [
        message((1, 2), (1, 1), (1, 1), (2, 1), (8, "m"), (9, struct.pack("<2f", 1, 2))),
        message((1, 1), (1, 2), (1, 1), (1, 1), (2, 11), (8, "d"), (10, struct.pack("<2d", 1, 2)))]),
    "own": onnx_file([onnx_node("Cast", ["x"], "x:as1", to=1),
                      onnx_node("Relu", ["x:as1"], "h")] + onnx_head, onnx_fc, producer="lockstep",
                     size="[2,4,4]", layers_from="x:as1", layers_to="y"),
    "outside": onnx_file([onnx_node("Relu", ["x"], "h")] + onnx_head, [onnx_fc[1], message(
        (1, 3), (1, 32), (2, 1), (8, "fc.weight"), (14, 1),
        (13, message((1, "location"), (2, "../secret"))), (13, message((1, "offset"), (2, "8"))))]),
    "old": onnx_file([onnx_node("Relu", ["x"], "h")] + onnx_head, onnx_fc, opset=7),
    "unknown": onnx_file([onnx_node("Einsum", ["x"], "h", equation="abcd->abcd")] + onnx_head, onnx_fc),
    "cut": onnx_file([onnx_node("Relu", ["x"], "h")] + onnx_head, onnx_fc)[:-40],
}
for name, data in graphs.items():
    put("onnx", name, data)

# ---- the files ---------------------------------------------------------------------------------


def files(folder):
    return {(path.parent.name, path.name): path.read_bytes() for path in sorted(folder.glob("*/*"))}


def write(folder):
    for target in {target for target, name in made}:
        shutil.rmtree(folder / target, ignore_errors=True)
    for (target, name), data in made.items():
        (folder / target).mkdir(parents=True, exist_ok=True)
        (folder / target / name).write_bytes(data)


def check(folder, kept):
    there = files(folder)
    problems = [f"{folder}/{target}/{name} is not what is made now"
                for target, name in sorted(made.keys() | there.keys())
                if made.get((target, name)) != there.get((target, name))]
    for (target, name), data in files(kept).items():
        problems += [f"{kept}/{target}/{name} is made as well, as {twin}: delete it"
                     for (of, twin), seed in made.items() if of == target and seed == data]
    print("\n".join(problems))
    return bool(problems)


if sys.argv[1:2] == ["--check"] and len(sys.argv) == 4:
    sys.exit(check(Path(sys.argv[2]), Path(sys.argv[3])))
if len(sys.argv) != 2:
    sys.exit(__doc__)
write(Path(sys.argv[1]))
