# shellcheck shell=bash
# What scripts/test-newest and scripts/test-oldest share: which tests they run, and the record of what has passed.

# A few tests from each area: imports, a launch, the text of an error, the panel, cells on every rank, a checkpoint.
smoke=(-m smoke tests)

# run NAME ARGUMENTS... The main suite, and the tests of frameworks where those are installed, or what the arguments say.
run() {
    local name=$1 venv=.venv-$1 status=0
    shift
    case ${1-} in
        --version) return ;;
        '' | --record) ;;
        *)
            "$venv/bin/python" -m pytest "$@"
            return
            ;;
    esac
    "$venv/bin/python" -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder -m 'not clock' || status=$?
    if [ "$name" = newest ]; then
        "$venv/bin/python" -m pytest tests/frameworks --timeout 600 -o faulthandler_timeout=630 || status=$?
    fi
    if [ "$status" = 0 ] && [ "${1-}" = --record ]; then
        "$venv/bin/python" scripts/lib/record_versions.py "$name"
        scripts/generate
    fi
    return "$status"
}
