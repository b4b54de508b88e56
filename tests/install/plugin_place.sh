#!/bin/sh
# SPDX-License-Identifier: MIT
# plugin_place.sh PREFIX LIBDIR PLUGIN WORK CC: the installed program, and a program that is linked
# with the installed library, look for back ends in their own prefix, wherever it is. PLUGIN is a
# back end of another name, so that both report which file they found.
set -eu
prefix=$1 libdir=$2 plugin=$3 work=$4 cc=$5
rm -rf -- "$work"
mkdir -p -- "$work"
cp -R -- "$prefix" "$work/moved"
# The folder has the version of the library's SONAME: another version has plugins of its own.
soname=$(readelf -d "$work/moved/$libdir/liblockstep.so" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
folder=$libdir/lockstep-${soname##*.so.}
mkdir -p -- "$work/moved/$folder"
cp -- "$plugin" "$work/moved/$folder/liblockstep-cuda.so"

found()
{
    grep -F "$folder/liblockstep-cuda.so holds the back end" "$1" && return
    echo "$2 did not find the plugin of its prefix:"
    cat "$1"
    exit 1
}
"$work/moved/bin/trainer" --version >"$work/program.txt"
found "$work/program.txt" "the program"

cat >"$work/list.c" <<'TEXT'
#include <lockstep/device_pool.h>
#include <lockstep/sys/plugin.h>
#include <stdio.h>
int main(void)
{
    ls_registry *registry;
    if (ls_registry_create(&registry, NULL, NULL) != LS_OK)
        return 1;
    for (int i = 0; ls_registry_at(registry, i); i++) {
        ls_backend_info info = {0};
        ls_registry_at(registry, i)->probe(&info);
        printf("%s: %s\n", ls_registry_at(registry, i)->name, info.reason);
    }
    ls_registry_destroy(registry);
    return 0;
}
TEXT
"$cc" -I"$work/moved/include" "$work/list.c" -L"$work/moved/$libdir" -llockstep \
    -Wl,-rpath,"$work/moved/$libdir" -o "$work/list"
"$work/list" >"$work/library.txt"
found "$work/library.txt" "the library"

# A plugin in a folder without a version, or with another one, is of another Lockstep.
for other in lockstep lockstep-0.1; do
    mv -- "$work/moved/$folder" "$work/moved/$libdir/$other"
    if "$work/moved/bin/trainer" --version | grep "holds the back end"; then
        echo "the program takes a plugin from $libdir/$other"
        exit 1
    fi
    mv -- "$work/moved/$libdir/$other" "$work/moved/$folder"
done
