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

/* Does nothing unless `fd` is a file's descriptor; then everything is noted in it. */
void fs_record_start(int fd);

/* Both do nothing, and the first returns 0, when nothing is noted. */
int fs_record_begin(int concerned);
void fs_record_end(int begun);

/* Names: of `what` is one name, or from one to another. */
void fs_record_name(const char *what, const char *path);
void fs_record_names(const char *what, const char *from, const char *to);

/* A name for a new file or directory, which now has an inode. */
void fs_record_new(const char *what, const char *path);

/* What was written, cut or synced, by inode. `at` -1: where the descriptor stands now, behind it. */
void fs_record_write(int fd, const void *bytes, ssize_t count, off_t at);
void fs_record_blocks(int fd, const struct iovec *blocks, ssize_t count);
void fs_record_cut(int fd);
void fs_record_sync(int fd);

/* All of a stream's file, which standard I/O has written on its own. */
void fs_record_whole(int fd);

#endif
