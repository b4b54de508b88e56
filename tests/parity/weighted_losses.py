#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares one step on weighted rows with PyTorch in float64: the loss, and the weights after a step of SGD, for random
cases of every loss.

    weighted_losses.py LIBRARY-FOLDER PACKAGE-FOLDER [CASES [SEED]]

The bound of a case is a few times the error of PyTorch's float32 in the same case, or 1e-6 if that is more. Exit status 77:
PyTorch is missing.
"""
import os
import sys

if os.environ.get("LD_LIBRARY_PATH", "").split(":")[0] != sys.argv[1]:
    os.environ["LD_LIBRARY_PATH"] = f"{sys.argv[1]}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    os.execv(sys.executable, [sys.executable, *sys.argv])
sys.path.insert(0, sys.argv[2])
try:
    import numpy as np
    import torch
except ImportError:
    print("skipped: no PyTorch")
    sys.exit(77)
import lockstep_trainer as lockstep

LR = 0.25
LOSSES = ("cross_entropy", "mse", "bce", "mae", "huber", "quantile", "poisson")


def row_losses(loss, z, t, quantiles):
    """The loss of each row."""
    f = torch.nn.functional
    if loss == "cross_entropy":
        return f.cross_entropy(z, t, reduction="none")
    if loss == "quantile":
        z = z.reshape(len(z), len(quantiles), -1)
        d = t[:, None] - z
        q = torch.tensor(quantiles, dtype=z.dtype)[None, :, None]
        return torch.maximum(q * d, (q - 1) * d).mean((1, 2))
    each = {"mse": lambda: f.mse_loss(z, t, reduction="none"),
            "bce": lambda: f.binary_cross_entropy_with_logits(z, t, reduction="none"),
            "mae": lambda: f.l1_loss(z, t, reduction="none"),
            "huber": lambda: f.huber_loss(z, t, reduction="none", delta=0.7),
            "poisson": lambda: f.poisson_nll_loss(z, t, log_input=True, reduction="none")}[loss]()
    return each.mean(1)


def with_torch(dtype, loss, x, y, w, start, quantiles):
    """Loss and parameters after a step in this precision."""
    weight, bias = (torch.tensor(p, dtype=dtype, requires_grad=True) for p in start)
    x, w = torch.tensor(x, dtype=dtype), torch.tensor(w, dtype=dtype)
    t = torch.tensor(y) if loss == "cross_entropy" else torch.tensor(y, dtype=dtype)
    value = (w * row_losses(loss, x @ weight.T + bias, t, quantiles)).sum() / w.sum()
    value.backward()
    return float(value.detach()), [(p - LR * p.grad).detach().numpy().astype(float) for p in (weight, bias)]


def with_lockstep(loss, x, y, w, quantiles, outputs, workers):
    """The parameters before the step, its loss, and those after it."""
    values = loss != "cross_entropy"
    config = {"data": {"standardize_target": False}, "batch_size": len(x), "devices": f"cpu:{workers}", "loss": loss,
              "shards": 8, "model": {"layers": [{"type": "dense", "name": "fc", "out": outputs}]},
              "optimizer": {"name": "sgd", "lr": LR}}
    if not values or loss in ("bce", "poisson"):
        del config["data"]["standardize_target"]
    if loss == "huber":
        config["huber_delta"] = 0.7
    if loss == "quantile":
        config["quantiles"] = quantiles
    shape = {"targets": y.shape[1]} if values else {"classes": outputs}
    with lockstep.Trainer(config, shape=x.shape[1:], dtype="float32", weighted=True, **shape) as t:
        before = t.weights()
        start = [before["fc.weight"].astype(float), before["fc.bias"].astype(float)]
        value, _ = t.step(x, y, w)
        after = t.weights()
        return start, value, [after["fc.weight"].astype(float), after["fc.bias"].astype(float)]


def case(draw, loss, number):
    rows, features, targets = int(draw.integers(1, 90)), int(draw.integers(1, 20)), int(draw.integers(1, 6))
    quantiles = sorted(float(q) for q in draw.uniform(0.05, 0.95, draw.integers(1, 4)))
    x = draw.normal(size=(rows, features)).astype(np.float32)
    w = draw.choice([0, 0.25, 1, 3.7, 20], rows).astype(np.float32)
    w[0] = 1
    y = {"cross_entropy": lambda: draw.integers(0, targets + 1, rows),
         "bce": lambda: draw.integers(0, 2, (rows, targets)).astype(np.float32),
         "poisson": lambda: draw.poisson(2, (rows, targets)).astype(np.float32)
         }.get(loss, lambda: draw.normal(size=(rows, targets)).astype(np.float32))()
    outputs = targets + 1 if loss == "cross_entropy" else targets * (len(quantiles) if loss == "quantile" else 1)
    start, value, after = with_lockstep(loss, x, y, w, quantiles, outputs, 1 + number % 8)
    exact, exact_after = with_torch(torch.float64, loss, x, y, w, start, quantiles)
    narrow, narrow_after = with_torch(torch.float32, loss, x, y, w, start, quantiles)

    def error(v, p):
        return max([abs(v - exact) / max(1, abs(exact))] +
                   [float(np.abs(a - b).max()) / max(1.0, float(np.abs(b).max())) for a, b in zip(p, exact_after)])

    return error(value, after), error(narrow, narrow_after)


def main():
    cases, seed = (int(a) for a in (sys.argv[3:] + ["100", "1"][len(sys.argv) - 3:]))
    draw, failed = np.random.default_rng(seed), 0
    for loss in LOSSES:
        ours, theirs = zip(*(case(draw, loss, i) for i in range(cases)))
        wrong = sum(a > max(4 * b, 1e-6) for a, b in zip(ours, theirs))
        print(f"{loss}: {cases} cases, largest error {max(ours):.2g}; of PyTorch's float32 {max(theirs):.2g}; {wrong} wrong")
        failed += wrong
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
