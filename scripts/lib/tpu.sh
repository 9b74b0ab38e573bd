# shellcheck shell=bash
# Makes .venv-tpu, as who has a TPU would make an environment: with the `tpu` extra, and so with the torch that torch_xla
# works with, which is Google Colab's too. The first time it downloads 4 GB; after that it does nothing while neither
# what is asked for nor the place has changed.
#
# PYTHON=python3.12  chooses the interpreter that a new .venv-tpu is made from: 3.10 to 3.13.
# TORCH_XLA=2.8.0    takes another torch_xla, with the torch of that version: Kaggle's TPU image has these. In .venv-tpu-2.8.0.
. scripts/lib/environment.sh
tpu_venv=.venv-tpu${TORCH_XLA:+-$TORCH_XLA}

tools=(pytest pytest-timeout hypothesis jupyter_client nbclient nbformat accelerate matplotlib pandas scikit-learn)

wanted() {
    printf '%s\n' "${TORCH_XLA-}" "${tools[@]}"
    cat pyproject.toml constraints.txt
}

install() {
    [ -d "$1" ] || make "$1"
    # What all is tested with, except for torch: that comes from the extra.
    local torch=${TORCH_XLA:-$(sed -n 's/.*"torch==\([0-9.]*\);.*/\1/p' pyproject.toml)} package=('.[tpu]')
    [ -z "${TORCH_XLA-}" ] || package=(. "torch_xla[tpu]==$TORCH_XLA")
    sed "s/^torch==.*/torch==$torch/" constraints.txt >"$1/constraints.txt"
    say "installing notebook-accel with torch_xla; the first time takes some minutes and 7 GB"
    pip_install "$1" --constraint "$1/constraints.txt" hatchling editables
    pip_install "$1" --constraint "$1/constraints.txt" --no-build-isolation --editable "${package[@]}" "${tools[@]}"
}

ensure "$tpu_venv"
