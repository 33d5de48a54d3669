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
                     [initial-exec, if the C library, the compilers and the linker support it]
  --target TRIPLE    build for another machine
  --uninstall        remove the files that an installation with the same options installed, and the
                     directories that are empty then
  --help             print this text

Needs cargo (Rust 1.85 or later), a C compiler and GNU binutils. Environment variables that it reads: CARGO,
RUSTC, RUSTFLAGS, CARGO_TARGET_DIR; CC, LD, OBJCOPY, AR, NM and READELF (for --target).

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
# The number of the first symbol version is that of the soname.
soname=liballotment.so.$(sed -n 's/^ALLOTMENT_\([0-9]*\) {$/\1/p' "$here/liballotment.map")

prefix=/usr/local libdir='' includedir='' destdir='' tls='' target=${CARGO_BUILD_TARGET:-} uninstall=no initial_exec=''
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
readelf=${READELF:-readelf}
for tool in "$cargo" "$rustc" "$cc" "$ld" "$objcopy" "$nm" "$readelf"; do
    command -v "$tool" >/dev/null || fail "$tool is missing: install a Rust toolchain, a C compiler and GNU binutils"
done
"$ld" --help | grep -q -e --force-group-allocation || fail "$ld is not GNU ld 2.29 or later; set LD to such a linker"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Initial-exec: thread-locals at an offset from the thread pointer that is known when the library is loaded. Stable Rust
# has no option for it. LLVM has one for TLS descriptors of the whole module: an access loads a descriptor and calls the
# function in it. The linker replaces both by a load of the offset and no-ops, of the same length, if the link also has
# an initial-exec reference to the descriptors' symbol, _TLS_MODULE_BASE_: the library then needs static thread-local
# storage in any case. The instructions below are that reference, and are never executed. The section's flag R keeps
# them in links with --gc-sections.
descriptors='' reference=''
host=$("$rustc" -vV | sed -n 's/^host: //p')
case ${target:-$host} in
x86_64-*)
    descriptors=-Cllvm-args=-enable-tlsdesc
    reference='movq _TLS_MODULE_BASE_@gottpoff(%rip), %rax'
    ;;
aarch64-*)
    descriptors=-Cllvm-args=-aarch64-elf-ldtls-generation
    reference='adrp x0, :gottprel:_TLS_MODULE_BASE_; ldr x0, [x0, :gottprel_lo12:_TLS_MODULE_BASE_]'
    ;;
esac
cat >"$work/initial_exec.s" <<END
    .section .text.allotment_initial_exec,"axR",%progbits
    $reference
    .section .note.GNU-stack,"",%progbits
END

# Prints why the libraries cannot have initial-exec thread-locals, or nothing.
obstacle() {
    case ${target:-$host} in
    *-musl*)
        echo 'musl cannot load such libraries with dlopen()'
        return
        ;;
    esac
    if [ -z "$descriptors" ]; then
        echo 'install.sh supports it on x86-64 and aarch64 only'
        return
    fi
    cat >"$work/probe.rs" <<'END'
std::thread_local!(static WORD: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
#[unsafe(no_mangle)]
pub extern "C" fn word() -> *mut u64 { WORD.with(std::cell::Cell::as_ptr) }
END
    "$rustc" ${target:+--target "$target"} --edition 2024 --crate-type lib -O "$descriptors" \
        --emit "obj=$work/probe.o" "$work/probe.rs" 2>/dev/null || true
    if ! "$readelf" -rW "$work/probe.o" 2>/dev/null | grep -q TLSDESC; then
        echo "$rustc cannot write TLS descriptors"
        return
    fi
    "$cc" -c "$work/initial_exec.s" -o "$work/initial_exec.o" 2>/dev/null || true
    "$cc" -shared -nostdlib -Wl,--gc-sections "$work/probe.o" "$work/initial_exec.o" -o "$work/probe.so" \
        2>/dev/null || true
    accesses=$("$readelf" -rW "$work/probe.so" 2>/dev/null) || true
    case $accesses in
    *TLSDESC*) ;;
    *TPOFF64* | *TPREL*) return ;;
    esac
    echo "the assembler or the linker of $cc does not turn TLS descriptors into initial-exec accesses"
}

case $tls in
'' | initial-exec)
    why=$(obstacle)
    if [ -z "$why" ]; then
        initial_exec=yes
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
# Link-time optimisation generates all code, that of Rust's standard library too, where this option applies.
"$cargo" "$@" ${initial_exec:+-- "$descriptors"}
# Libraries that the Rust standard library needs, besides the C library and libgcc, which compilers link by default.
private='-lutil -lrt -lpthread -lm -ldl'

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
"$ld" -r --gc-sections --force-group-allocation @"$work/roots" -o "$work/linked.o" "$archive" \
    ${initial_exec:+"$work/initial_exec.o"}
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
