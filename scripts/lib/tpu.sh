# shellcheck shell=bash
# Makes .venv-tpu, as who has a TPU would make an environment: with the `tpu` extra, and so with the torch that torch_xla
# works with, which is Google Colab's too. The first time it downloads 4 GB; after that it does nothing while neither
# what is asked for nor the place has changed.
#
# PYTHON=python3.12  chooses the interpreter that a new .venv-tpu is made from: 3.10 to 3.13.
. scripts/lib/environment.sh

tools=(pytest pytest-timeout hypothesis jupyter_client nbclient nbformat accelerate matplotlib pandas scikit-learn)

wanted() {
    printf '%s\n' "${tools[@]}"
    cat pyproject.toml constraints.txt
}

install() {
    [ -d "$1" ] || make "$1"
    # What all is tested with, except for torch: that comes from the extra.
    sed "s/^torch==.*/$(sed -n 's/.*"\(torch==[0-9.]*\);.*/\1/p' pyproject.toml)/" constraints.txt >"$1/constraints.txt"
    say "installing notebook-accel with torch_xla; the first time takes some minutes and 7 GB"
    pip_install "$1" --constraint "$1/constraints.txt" hatchling editables
    pip_install "$1" --constraint "$1/constraints.txt" --no-build-isolation --editable '.[tpu]' "${tools[@]}"
}

ensure .venv-tpu
