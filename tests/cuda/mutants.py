#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Plants bugs in the CUDA back end one at a time, and checks that a test over the doubles notices each.

    mutants.py BUILD [NAME]...     # NAME: only these bugs; BUILD: a build folder with LOCKSTEP_CUDA=ON

Each bug replaces one text of one file under src/cuda. The script builds the program of a test, runs the
test, which must fail with a failed case of the given name, and restores the file. It refuses files
with changes that are not committed. Takes some minutes, so it is run by hand: after tests of the back
end were removed or merged, for example. Exit status 1 if a bug is not noticed.
"""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OPS = "cuda_ops/test_cuda_ops"

# name, file under src/cuda, text, what it becomes, program under BUILD/tests, its test, a case that fails ("": any)
BUGS = [
    ("ops' memory is not aligned", "cuda_op.c", "(bytes + 255) / 256 * 256", "(bytes + 3) / 4 * 4",
     OPS, "cuda_precision", ""),
    ("a workspace for forward alone", "cuda_product.c", "p < LS_PASSES; p++)\n        if (op->plan[p] && op->plan[p]->work",
     "p < 1; p++)\n        if (op->plan[p] && op->plan[p]->work", OPS, "cuda_precision", ""),
    ("cuDNN's operands are exchanged", "math/cudnn_conv.c", "{LS_GRAPH_A, LS_GRAPH_B, LS_GRAPH_OUT, LS_GRAPH_BIAS}",
     "{LS_GRAPH_B, LS_GRAPH_A, LS_GRAPH_OUT, LS_GRAPH_BIAS}", "cuda_ops/cuda_tuning", "cuda_tuning", ""),
    ("weights are transposed for dx", "math/cublas_dense.c", "(dense_form){s->c, s->rows, s->out, 0, 0, 1}",
     "(dense_form){s->c, s->rows, s->out, 1, 0, 1}", "cuda_ops/cuda_dense", "cuda_dense", "products_are_those_of_their_layer"),
    ("cuDNN gets no bias", "math/cudnn_conv.c", "p->inside.shape.bias ? 4 : 3", "3",
     "cuda_ops/cuda_tuning", "cuda_tuning", ""),
    ("own gradients are not added", "cuda_conv.c", ".add = ls_cuda_accumulates(op),", ".add = 0,",
     OPS, "cuda_own_conv", "gradients_accumulate"),
    ("gradients in bf16 are not added", "cuda_conv.c", "ls_k_from_bf16(grad, out, count, add, on)",
     "ls_k_from_bf16(grad, out, count, 0, on)", OPS, "cuda_precision", "bf16_accumulates"),
    ("own forward leaves the relu out", "cuda_conv.c", "k.relu = op->desc.fuse_relu;", "k.relu = 0;",
     OPS, "cuda_own_conv", "first_convolutions_are_near_the_reference"),
    ("runs beside load are left out", "math/tune.c", "run < BITS_RUNS && same", "run < BITS_RUNS - 2 && same",
     "cuda_ops/cuda_tuning", "cuda_tuning", "engines_with_varying_results_are_refused"),
    ("a wrong label is not reported", "cuda_stream.c", "if (fault.code == 0)", "if (1)",
     "cuda_gpu/gpu_tests", "gpu_plugged", "a_label_that_is_no_class_is_reported"),
    ("a stream does not wait for an event", "cuda_stream.c", "cudaStreamWaitEvent(ls_cuda_stream(d, stream), event->cuda, 0)",
     "(event->cuda ? cudaSuccess : cudaErrorInvalidValue)", OPS, "cuda_device", "a_stream_waits_for_anothers_event"),
    ("each communicator is aborted alone", "comm/links.c", "l->nccl.ncclGroupStart() == ncclSuccess", "false",
     "cuda/test_cuda", "cuda_comm", ""),
    ("the merge's kernels are loaded late", "comm/merge.c", "status = load_kernels(comm, err);", "status = LS_OK;",
     "cuda/test_cuda", "cuda_comm", ""),
    ("the caller's device is not kept", "comm/group.c",
     "ls_thread_start(&thread, unpin_memory, group) == 0) {\n        pthread_join(thread, NULL);",
     "unpin_memory(group) == NULL) {\n        (void)thread;", "cuda/test_cuda", "cuda_comm_hosts", ""),
]


def build(folder, program):
    names = [pathlib.Path(program).name]
    if program.startswith("cuda_gpu/"):
        names.append("gpu_plugin_doubled")
    subprocess.run(["ninja", "-C", folder, *names], check=True, stdout=subprocess.DEVNULL)


def failed(folder, program, test):
    """Runs a test. Returns its status and its output."""
    tests = folder.resolve() / "tests"
    env = f"LOCKSTEP_TEST_PLUGIN={tests}/cuda_gpu/doubled/liblockstep-cuda.so"
    done = subprocess.run(["env", env, tests / program, "--run", test], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False, cwd=tests)
    return done.returncode, done.stdout


def notices(folder, bug):
    """Plants the bug. Returns what the test says about it, or None."""
    _, file, text, becomes, program, test, case = bug
    path = ROOT / "src" / "cuda" / file
    whole = path.read_text()
    if whole.count(text) != 1:
        sys.exit(f"{file}: expected once: {text}")
    if subprocess.run(["git", "-C", ROOT, "diff", "--quiet", "HEAD", "--", path], check=False).returncode:
        sys.exit(f"{file} has changes that are not committed")
    try:
        path.write_text(whole.replace(text, becomes))
        build(folder, program)
        status, output = failed(folder, program, test)
    finally:
        path.write_text(whole)
    lines = [line for line in output.splitlines() if "FAILED" in line and case in line]
    return status and (lines[0] if lines else None if case else f"status {status}")


def main():
    folder, only = pathlib.Path(sys.argv[1]), sys.argv[2:]
    missed = 0
    programs = set()
    for bug in BUGS:
        if not only or bug[0] in only:
            programs.add(bug[4])
            how = notices(folder, bug)
            print(f"{bug[0]}: {how or 'NOT NOTICED'}", flush=True)
            missed += not how
    for program in programs:
        build(folder, program)
    print(f"{missed} not noticed")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
