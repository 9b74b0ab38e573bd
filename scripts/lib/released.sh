# shellcheck shell=bash
# What scripts/test-newest and scripts/test-oldest share: which tests they run, and the record of what has passed.

# run NAME ARGUMENTS... The main suite in .venv-NAME, and the tests of frameworks in .venv-NAME-frameworks if that is there;
# with --smoke, a few of the main suite: imports, a launch, the text of an error, the panel, cells on every rank, a checkpoint.
run() {
    local name=$1 status=0 all=(--numprocesses 4 --dist loadfile --no-loadscope-reorder -m 'not clock') frameworks=.venv-$1-frameworks
    shift
    case ${1-} in
        --version) return ;;
        '' | --record) ;;
        --smoke) all=(-m smoke) frameworks='' ;;
        *)
            ".venv-$name/bin/python" -m pytest "$@"
            return
            ;;
    esac
    if [ -d "$frameworks" ]; then
        "$frameworks/bin/python" -m pytest tests/frameworks --timeout 600 -o faulthandler_timeout=630 || status=$?
    fi
    ".venv-$name/bin/python" -m pytest "${all[@]}" || status=$?
    if [ "$status" = 0 ] && [ "${1-}" = --record ]; then
        ".venv-$name/bin/python" scripts/lib/record_versions.py "$name"
        scripts/generate
    fi
    return "$status"
}
