/* SPDX-License-Identifier: MIT */
/* A library that needs a newer NCCL than the one with which the plugin was built, as PyTorch can.
 */
int ncclOfLater(void);
int stub_torch_version(void);
int stub_torch_version(void)
{
    return ncclOfLater();
}
