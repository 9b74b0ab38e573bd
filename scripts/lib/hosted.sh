# shellcheck shell=bash
# Makes .venv-colab and .venv-kaggle, with the versions that the images of these services had in November 2026: of Python,
# torch, and what makes a notebook. Source: Kaggle's docker-python, which starts from Colab's image, and Colab's backend-info.
# Where such a Python is not to be had, with the one that is here.
. scripts/lib/environment.sh

kernel=(
    anywidget==0.9.21 ipykernel==6.17.1 ipython==7.34.0 jupyter_client==7.4.9 matplotlib-inline==0.1.7 pyzmq==26.2.1 tornado==6.5.1 traitlets==5.7.1
)
tools=(matplotlib pandas scikit-learn) # which the images have, too
declare -A pythons=([colab]=3.13 [kaggle]=3.12)
declare -A packages=(
    [colab]='torch==2.11.* ipywidgets==7.7.1 widgetsnbextension==3.6.10'
    [kaggle]='torch==2.10.* ipywidgets==8.1.5 jupyterlab_widgets==3.0.13 widgetsnbextension==4.0.13'
)

wanted() {
    printf '%s\n' "${pythons[$hosted]}" "${packages[$hosted]}" "${kernel[@]}" "${tools[@]}"
    cat pyproject.toml
}

install() {
    local python
    python=$(find_python "${pythons[$hosted]}" || true)
    [ -n "$python" ] || say "WARNING: Python ${pythons[$hosted]}, which $hosted has, is not here: with $(python3 --version) instead"
    [ -d "$1" ] || PYTHON=${python:-${PYTHON:-python3}} make "$1"
    say "installing what $hosted has into $1; the first time takes some minutes"
    # shellcheck disable=SC2086  # a list
    install_released "$1" --editable . "${kernel[@]}" "${tools[@]}" ${packages[$hosted]}
}

for hosted in colab kaggle; do ensure ".venv-$hosted"; done
