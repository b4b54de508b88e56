/* SPDX-License-Identifier: MIT */
/* A library with the name of NVIDIA's driver (libcuda.so.1). */
typedef int stub_driver;
