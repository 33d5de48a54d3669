#!/bin/sh
# Builds the shared and the static library and installs them with headers, pkg-config file and CMake package.
set -eu

usage() {
    cat <<'END'
Builds and installs Allotment for C and C++: liballotment.so, liballotment.a, the headers, allotment.pc for
pkg-config and a CMake package.

usage: install.sh [options]

  --prefix DIR       the directory to install under, an absolute path  [/usr/local]
  --libdir DIR       the directory for the libraries                   [PREFIX/lib]
  --includedir DIR   the directory for the headers                     [PREFIX/include]
  --destdir DIR      write every file below DIR, to build a package
  --tls MODEL        the model of the libraries' thread-locals:
                       initial-exec  an access makes no call
                       default       each access makes a call; for programs that run out of static
                                     thread-local storage because they load many libraries with
                                     dlopen()
                     [initial-exec, if the Rust compiler and the C library support it]
  --target TRIPLE    build for another machine
  --uninstall        remove the files that an installation with the same options installed, and the
                     directories that are empty then
  --help             print this text

Needs cargo (Rust 1.85 or later), a C compiler and GNU binutils. Environment variables that it reads: CARGO,
RUSTC, RUSTFLAGS, CARGO_TARGET_DIR; CC, LD, OBJCOPY, AR and NM (for --target).

Then compile and run a program with

    cc program.c -o program $(pkg-config --cflags --libs allotment) \
        -Wl,-rpath,"$(pkg-config --variable=libdir allotment)" && ./program
END
}

fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
soname=liballotment.so.${version%%.*}

prefix=/usr/local libdir='' includedir='' destdir='' tls='' target=${CARGO_BUILD_TARGET:-} uninstall=no
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h)
        usage
        exit
        ;;
    --uninstall)
        uninstall=yes
        shift
        continue
        ;;
    --*=*)
        name=${1%%=*} value=${1#*=}
        shift
        ;;
    --*)
        name=$1
        [ $# -gt 1 ] || fail "$1 needs a value, or is unknown; --help lists the options"
        value=$2
        shift 2
        ;;
    *) fail "unknown argument '$1'; --help lists the options" ;;
    esac
    case $name in
    --prefix) prefix=$value ;;
    --libdir) libdir=$value ;;
    --includedir) includedir=$value ;;
    --destdir) destdir=$value ;;
    --tls) tls=$value ;;
    --target) target=$value ;;
    *) fail "unknown option '$name'; --help lists the options" ;;
    esac
done

[ "$prefix" = / ] || prefix=${prefix%/}
libdir=${libdir:-$prefix/lib} includedir=${includedir:-$prefix/include}
for directory in "$prefix" "$libdir" "$includedir" ${destdir:+"$destdir"}; do
    case $directory in
    /*) ;;
    *) fail "'$directory' is not an absolute path" ;;
    esac
done
cmakedir=$libdir/cmake/allotment

# The headers, below their directory.
headers() {
    (cd "$here/include" && find . -name '*.h' -o -name '*.hpp') | sed 's,^\./,,' | sort
}

# Every installed path, without the destination directory.
installed() {
    headers | while IFS= read -r header; do
        printf '%s\n' "$includedir/$header"
    done
    printf '%s\n' "$libdir/liballotment.a" "$libdir/liballotment.so.$version" "$libdir/$soname" \
        "$libdir/liballotment.so" "$libdir/pkgconfig/allotment.pc" "$cmakedir/allotment-config.cmake" \
        "$cmakedir/allotment-config-version.cmake"
}

# The highest directory above an installation directory that goes with it if it is empty. Those above the prefix are the
# system's own, unless they were made to stage files.
highest() { # directory
    if [ -z "$destdir" ]; then
        case $1 in
        "$prefix"/*) printf '%s' "$prefix" ;;
        *) printf '%s' "$1" ;;
        esac
    fi
}

# Removes a directory and those above it, as far as they are empty.
remove_empty() { # directory, the highest one
    directory=$1
    while [ ! -e "$destdir$directory" ] || rmdir "$destdir$directory" 2>/dev/null; do
        [ "$directory" != "$2" ] || break
        directory=${directory%/*}
    done
}

if [ $uninstall = yes ]; then
    installed | while IFS= read -r path; do
        if [ -e "$destdir$path" ] || [ -L "$destdir$path" ]; then
            rm "$destdir$path"
            printf 'removed %s\n' "$destdir$path"
        fi
    done
    remove_empty "$cmakedir" "$(highest "$libdir")"
    remove_empty "$libdir/pkgconfig" "$(highest "$libdir")"
    remove_empty "$includedir/allotment" "$(highest "$includedir")"
    exit
fi

cargo=${CARGO:-cargo} rustc=${RUSTC:-rustc} cc=${CC:-cc} ld=${LD:-ld} objcopy=${OBJCOPY:-objcopy} nm=${NM:-nm}
for tool in "$cargo" "$rustc" "$cc" "$ld" "$objcopy" "$nm"; do
    command -v "$tool" >/dev/null || fail "$tool is missing: install a Rust toolchain, a C compiler and GNU binutils"
done
"$ld" --help | grep -q -e --force-group-allocation || fail "$ld is not GNU ld 2.29 or later; set LD to such a linker"

# Thread-locals at an offset from the thread pointer that is known when the library is loaded. The compiler's option is
# not stable, so the script tests whether the compiler accepts it. musl cannot load such a library with dlopen().
host=$("$rustc" -vV | sed -n 's/^host: //p')
flags=${RUSTFLAGS:-}
case $tls in
'' | initial-exec)
    case ${target:-$host} in
    *-musl*) why='musl cannot load such libraries with dlopen()' ;;
    *)
        why="$rustc does not support -Ztls-model"
        RUSTC_BOOTSTRAP=1 "$rustc" -Ztls-model=initial-exec --print cfg >/dev/null 2>&1 && why=''
        ;;
    esac
    if [ -z "$why" ]; then
        export RUSTC_BOOTSTRAP=1
        flags="$flags -Ztls-model=initial-exec"
    elif [ -n "$tls" ]; then
        fail "--tls initial-exec is not possible: $why"
    else
        printf 'install.sh: using --tls default, each access to a thread-local makes a call: %s\n' "$why"
    fi
    ;;
default) ;;
*) fail "--tls takes initial-exec or default, not '$tls'" ;;
esac

targets=${CARGO_TARGET_DIR:-$root/target}
set -- rustc --manifest-path "$here/Cargo.toml" --lib --crate-type staticlib --profile c-library --locked \
    --target-dir "$targets"
if [ -n "$target" ]; then
    set -- "$@" --target "$target"
    targets=$targets/$target
fi
RUSTFLAGS=$flags "$cargo" "$@"
# Libraries that the Rust standard library needs, besides the C library and libgcc, which compilers link by default.
private='-lutil -lrt -lpthread -lm -ldl'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# One object whose only global symbols are the functions of the headers, so that a program can also link other static
# libraries written in Rust. Those of older allocators' names are weak.
archive=$targets/c-library/liballotment_c.a
"$nm" --defined-only -g "$archive" 2>/dev/null |
    sed -n -e 's/^[0-9a-f]* T \(allot_.*\)/--undefined=\1/p' \
        -e 's/^[0-9a-f]* W \(aral_.*\)/--undefined=\1/p' -e 's/^[0-9a-f]* W \(onewayalloc_.*\)/--undefined=\1/p' \
        -e 's/^[0-9a-f]* W \(list_.*\)/--undefined=\1/p' >"$work/roots"
for name in allot_version aral_create onewayalloc_create list_create; do
    grep -q "=$name\$" "$work/roots" || fail "$archive does not define $name"
done
"$ld" -r --gc-sections --force-group-allocation @"$work/roots" -o "$work/linked.o" "$archive"
"$objcopy" --strip-debug --wildcard --keep-global-symbol='allot_*' --keep-global-symbol='aral_*' \
    --keep-global-symbol='onewayalloc_*' --keep-global-symbol='list_*' "$work/linked.o" "$work/allotment.o"
rm -f "$work/liballotment.a"
"${AR:-ar}" rcsD "$work/liballotment.a" "$work/allotment.o"

# Never unloaded: threads run its destructors when they end.
# shellcheck disable=SC2086 # a list of options
"$cc" -shared -o "$work/liballotment.so" "$work/allotment.o" "-Wl,-soname,$soname" \
    "-Wl,--version-script,$here/liballotment.map" -Wl,-Bsymbolic-functions,--gc-sections,--as-needed \
    -Wl,-z,defs,-z,now,-z,relro,-z,nodelete,-z,noexecstack $private -lgcc_s

cat >"$work/allotment.pc" <<END
prefix=$prefix
libdir=$libdir
includedir=$includedir
static_library=\${libdir}/liballotment.a

Name: allotment
Description: Memory allocators chosen by object lifetime and by the threads that use an object
Version: $version
Cflags: -I"\${includedir}"
Libs: -L"\${libdir}" -lallotment
Libs.private: $private
END

# If both directories lie under the prefix, the package finds its files relative to its own location.
includes=$includedir
case $libdir/:$includedir/ in
"$prefix"/*:"$prefix"/*)
    up=$(printf '%s' "${cmakedir#"$prefix"/}" | sed 's,[^/][^/]*,..,g')
    includes="\${CMAKE_CURRENT_LIST_DIR}/$up/${includedir#"$prefix"/}"
    ;;
esac
sed -e "s,@VERSION@,$version,g" -e "s,@SONAME@,$soname,g" -e "s,@INCLUDES@,$includes,g" \
    -e "s,@PRIVATE@,$(printf '%s' "$private" | sed 's/-l//g; s/ /;/g'),g" \
    "$here/cmake/allotment-config.cmake.in" >"$work/allotment-config.cmake"
sed -e "s,@VERSION@,$version,g" "$here/cmake/allotment-config-version.cmake.in" \
    >"$work/allotment-config-version.cmake"

put() { # mode, file, installed path
    mkdir -p "$(dirname "$destdir$3")"
    install -m "$1" "$2" "$destdir$3"
}
headers | while IFS= read -r header; do
    put 644 "$here/include/$header" "$includedir/$header"
done
put 644 "$work/liballotment.a" "$libdir/liballotment.a"
put 755 "$work/liballotment.so" "$libdir/liballotment.so.$version"
ln -sf "liballotment.so.$version" "$destdir$libdir/$soname"
ln -sf "$soname" "$destdir$libdir/liballotment.so"
put 644 "$work/allotment.pc" "$libdir/pkgconfig/allotment.pc"
put 644 "$work/allotment-config.cmake" "$cmakedir/allotment-config.cmake"
put 644 "$work/allotment-config-version.cmake" "$cmakedir/allotment-config-version.cmake"
installed | while IFS= read -r path; do
    [ -e "$destdir$path" ] || fail "$destdir$path was not installed"
    printf 'installed %s\n' "$destdir$path"
done
