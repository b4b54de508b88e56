/* SPDX-License-Identifier: MIT */
/* The recording part of fs_fault.c: what a program requested from the file system, in order. From
 * the record power_cuts.py creates the directories that a power cut may leave.
 *
 * Between fs_record_begin and fs_record_end one call is made and recorded; calls of other threads
 * wait. An entry is a line "SAID WHAT …", followed by the bytes that were written, if any. SAID is
 * the amount of output that the program had produced when the call began: the size of its standard
 * output, which is a file. */
#ifndef CAMPAIGNS_FS_RECORD_H
#define CAMPAIGNS_FS_RECORD_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Starts recording to the file with descriptor `fd`; does nothing if `fd` is not a descriptor. */
void fs_record_start(int fd);

/* Mark the begin and the end of a recorded call. Without recording both do nothing, and the first
 * returns 0. */
int fs_record_begin(int concerned);
void fs_record_end(int begun);

/* Record a call that concerns one name, or that moves one name to another. */
void fs_record_name(const char *what, const char *path);
void fs_record_names(const char *what, const char *from, const char *to);

/* Records the name of a new file or directory, which now has an inode. */
void fs_record_new(const char *what, const char *path);

/* Record what was written, truncated or synced, by inode. `at` -1: the write ended at the
 * descriptor's present position. */
void fs_record_write(int fd, const void *bytes, ssize_t count, off_t at);
void fs_record_blocks(int fd, const struct iovec *blocks, ssize_t count);
void fs_record_cut(int fd);
void fs_record_sync(int fd);

/* Records the whole content of a stream's file, which standard I/O has written internally. */
void fs_record_whole(int fd);

#endif
