# shellcheck shell=bash
# What the scripts share that need a virtual environment; they source it in the root of the repository. Such a script
# defines `wanted`, which prints what the environment depends on, and `install FOLDER`, which fills it, or makes it
# first. `ensure FOLDER` then does that, or nothing.

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
    say "$*"
    exit 1
}

# Does nothing when what is wanted, the way to it and the place are the same as the last time. One at a time: a second
# run, which locks the same script, waits here and then finds the work done. Where there is no flock (macOS), take care.
ensure() {
    local venv=$1
    exec 9<"scripts/${0##*/}"
    if command -v flock >/dev/null; then
        flock 9
    fi
    if ! is_current "$venv"; then
        is_usable "$venv" || rm -rf "$venv"
        rm -f "$venv/.setup-stamp"
        install "$venv"
        stamp >"$venv/.setup-stamp"
    fi
    exec 9<&-
}

stamp() {
    pwd -P
    declare -f install
    wanted
}

is_current() { [ -f "$1/.setup-stamp" ] && stamp | cmp -s - "$1/.setup-stamp" && "$1/bin/python" -c '' 2>/dev/null; }

# Whether there is an environment to install into: its Python is still there, and it was not copied or moved here (the
# scripts in it name their interpreter by its full path).
is_usable() {
    "$1/bin/python" -m pip --version >/dev/null 2>&1 &&
        { [ ! -f "$1/.setup-stamp" ] || [ "$(head -n 1 "$1/.setup-stamp")" = "$(pwd -P)" ]; }
}

# An empty environment. PYTHON chooses the interpreter.
make() {
    local python=${PYTHON:-python3}
    command -v "$python" >/dev/null || die "there is no $python on the PATH; install Python 3.10 or newer"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        die "$("$python" --version) is too old; set PYTHON to a Python 3.10 or newer"
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        die "$python cannot make virtual environments (it has no ensurepip). On Debian and Ubuntu, run" \
            "'apt-get install python3-venv', or set PYTHON to another interpreter"
    say "making $1 with $("$python" --version)"
    "$python" -m venv "$1"
}

# The newest interpreter of a version: on the PATH, or pyenv's, which may offer it there without having it chosen.
find_python() {
    "python$1" -c 'import sys; print(sys.executable)' 2>/dev/null ||
        ls -d "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python 2>/dev/null | sort -V | tail -n 1
}

# An empty environment that is lent all packages of .venv, so that nothing is installed twice. What is missing is to be
# installed beside them with --no-deps, by its full list: uv would not look for the rest in .venv.
make_beside() {
    .venv/bin/python -m venv --clear --without-pip "$1"
    echo "import site; site.addsitedir('$(packages .venv)')" >"$(packages "$1")/shared.pth"
}

# ensure_beside NAME: .venv-NAME, which shares the packages of .venv, and has those of tests/NAME/requirements.txt besides.
ensure_beside() {
    local requirements=tests/$1/requirements.txt
    wanted() { cat .venv/.setup-stamp "$requirements"; }
    install() {
        say "making $1; the first time takes a minute or two"
        make_beside "$1"
        pip_install "$1" --no-deps --requirement "$requirements"
        "$1/bin/python" -m pip check # that the list is full
    }
    scripts/setup
    ensure ".venv-$1"
}

# Where an environment keeps its packages.
packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# pip_install FOLDER ARGUMENTS... By uv, which takes a fifth of the work and downloads side by side; by pip, which is all
# that a new environment has, where uv is not to be had or knows no way.
pip_install() {
    local python=$1/bin/python
    local pip=("$python" -m pip --disable-pip-version-check --quiet install)
    { has_uv "$python" || "${pip[@]}" --constraint constraints.txt uv; } && "$python" scripts/lib/uv.py install "${@:2}" && return
    say "WARNING: uv has not installed it, for the reason above; pip does, which takes five times as long"
    "${pip[@]}" --upgrade 'pip>=25.1' && "${pip[@]}" "${@:2}" # older ones know no --group
}

has_uv() { "$1" -m uv --version >/dev/null 2>&1; }

# offline: no model and no data set is fetched. On some processors TensorFlow tells every process that it uses oneDNN,
# whatever its log level.
offline() { export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TF_CPP_MIN_LOG_LEVEL=2 TF_ENABLE_ONEDNN_OPTS=0; }

# install_released FOLDER ARGUMENTS... What a user gets: no constraints of this project, and nothing that pip's settings
# cap or replace. torch comes without CUDA where PyTorch's own index can be reached, and otherwise as the index has it;
# its files are then compiled as they are imported, since most never are.
install_released() {
    local -x UV_COMPILE_BYTECODE=0
    local install=(.venv/bin/python scripts/lib/uv.py --as-published install --python "$1/bin/python" "${@:2}")
    "${install[@]}" --torch-backend cpu 2>"$1/without-cuda.log" || {
        say "WARNING: no torch without CUDA is to be had: $(tail -n 1 "$1/without-cuda.log")"
        "${install[@]}"
    }
}

# The first names of a list of requirements, without versions: what is wanted itself, before what that brings along.
wanted_of() { awk '/^#/ { next } /^$/ { exit } { sub(/[=<>].*/, ""); print }' "$1"; }
