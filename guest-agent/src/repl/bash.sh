# What lives inside of a bash context and speaks with the agent. docs/reference/drivers.md is its contract.
#
# All of it is one command, so that the shell has read this file to its end before any code runs.
# Code runs at the top level and in no function, because `declare` in a function makes a local
# variable. A shell has but one way to give up what it is doing without ending: a `return` in a trap
# leaves the innermost function or file. So interrupts, `exit` and `set -e` begin with that, and a
# DEBUG trap says it again before every command until the code's own file has been left.
{
    builtin readonly __burrow="$BURROW_REPL" __burrow_channel=250
    __burrow_token=''
    while [[ $BURROW_TOKEN ]]; do
        __burrow_token+="\\x${BURROW_TOKEN:0:2}"
        BURROW_TOKEN=${BURROW_TOKEN:2}
    done
    builtin readonly __burrow_token
    builtin unset -v BURROW_REPL BURROW_TOKEN

    # The channel moves out of the way, to a number that what the shell starts does not inherit:
    # while 3 is redirected, the shell keeps it for itself at the lowest free number from 10 on, and
    # a copy of what a shell keeps for itself is closed in its children as well.
    __burrow_kept=10
    while [[ -e /proc/$$/fd/$__burrow_kept ]]; do ((++__burrow_kept)); done
    builtin eval "exec $__burrow_channel<&$__burrow_kept" 3<&-
    exec 3<&-

    # Sends a message, written as printf's escapes. A shell's output ends a write at every newline,
    # so a message with such a byte goes in parts. The token has none.
    __burrow_say() {
        builtin local rest="$1"
        while [[ $rest == *'\x0a'* ]]; do
            builtin printf "$__burrow_token\\x01${rest%%'\x0a'*}\\x0a"
            rest=${rest#*'\x0a'}
        done
        builtin printf "$__burrow_token\\x00$rest"
    } >&"$__burrow_channel"

    # Says that the interpreter takes runs.
    __burrow_introduce() {
        builtin local LC_ALL=C program="${BASH:0:255}" version="${BASH_VERSION%%[!0-9.]*}" sizes
        builtin printf -v sizes '\\x%02x' ${#version} ${#program}
        program=${program//\\/\\\\}
        __burrow_say "\x81\xa5ready\x82\xa7version\xd9${sizes:0:4}$version\xa7program\xd9${sizes:4}${program//%/%%}"
    }

    # Begins to leave the code. What was set until then is what the next run finds set.
    __burrow_leave() {
        __burrow_end=$1 __burrow_status=$2
        __burrow_kept=${__burrow_kept:-"+$-"}
        builtin set +ex -T
        builtin trap '((${#BASH_SOURCE[@]} < 2)) || builtin return 0' DEBUG
    }
    __burrow_interrupted() {
        ((__burrow_running)) && __burrow_leave interrupted 130
    }
    __burrow_failed() {
        [[ $- == *e* ]] && ((__burrow_running && !BASH_SUBSHELL)) && __burrow_leave exit "$1"
    }
    # The code's own traps come first; what it has only taken away is put back. The file of the run's
    # number serves to see what there is, because a child that sees it would cost a millisecond.
    __burrow_trap() {
        builtin local interrupt='{ __burrow_interrupted && builtin return 0; } 2>/dev/null'
        builtin local failure='{ __burrow_failed "$?" && builtin return 0; } 2>/dev/null'
        builtin trap -p INT >|"$__burrow/run"
        [[ -s $__burrow/run ]] || builtin trap "$interrupt" INT
        builtin trap -p ERR >|"$__burrow/run"
        [[ -s $__burrow/run ]] || builtin trap "$failure" ERR
        builtin trap "$interrupt" 40
    }

    # In the shell itself it ends the run, and in a child the child.
    exit() {
        {
            builtin set -- "${1-$?}" "${@:2}"
            __burrow_kept=${__burrow_kept:-"+$-"}
            builtin set +ex
        } 2>/dev/null
        ((__burrow_running && !BASH_SUBSHELL)) || builtin exit "$@"
        (builtin exit "$@")
        __burrow_leave exit "$?"
    }

    # Waits for an order. TMOUT and traps may end the waiting early; the end of the channel is the
    # end of the shell.
    __burrow_wait() {
        builtin local order
        until builtin read -r -u "$__burrow_channel" order; do
            (($? > 128)) || builtin exit 0
        done
        __burrow_trap
        __burrow_stdout=$__burrow/out __burrow_stderr=$__burrow/err
        [[ -p $__burrow_stdout && -p $__burrow_stderr ]] ||
            __burrow_stdout=/proc/$$/fd/1 __burrow_stderr=/proc/$$/fd/1
    }
    # The status of the run before is what the code finds in `$?`, unless that would end it.
    __burrow_begin() {
        __burrow_end='' __burrow_kept='' __burrow_running=1
        [[ -z $__burrow_options ]] || builtin set "-$__burrow_options"
        [[ $- == *e* ]] || builtin return "$__burrow_status"
    }
    __burrow_done() {
        builtin local code status='\xa4exit' interrupted='\xc2'
        builtin printf -v code '\\x%02x' "$__burrow_status"
        ((__burrow_status)) || status='\xa2ok'
        [[ $__burrow_end != interrupted ]] || interrupted='\xc3'
        __burrow_say "\x81\xa4done\x84\xa3run\x00\xa6status$status\xa4code\xcc$code\xabinterrupted$interrupted"
    }

    __burrow_running=0 __burrow_status=0 __burrow_options='' __burrow_end='' __burrow_kept=''
    builtin readonly -f __burrow_say __burrow_leave __burrow_interrupted __burrow_failed \
        __burrow_trap __burrow_wait __burrow_begin __burrow_done
    builtin shopt -s expand_aliases execfail
    BASH_ARGV0=bash
    __burrow_introduce
    builtin unset -f __burrow_introduce

    while :; do
        # Functions and subshells have to inherit the trap by which `set -e` is seen.
        builtin set -E
        __burrow_wait
        # What the shell says of its driver, as under `set -x`, is for nobody.
        {
            if __burrow_begin; then
                builtin source "$__burrow/code" >"$__burrow_stdout" 2>"$__burrow_stderr"
            else
                builtin source "$__burrow/code" >"$__burrow_stdout" 2>"$__burrow_stderr"
            fi
            {
                __burrow_last=$? __burrow_running=0
                builtin trap - DEBUG RETURN
                __burrow_options=${__burrow_kept:-$-}
                __burrow_options=${__burrow_options//[!aeuvxT]/}
                builtin set +aeuvxT
                builtin export -n "${!__burrow@}"
                [[ $__burrow_end ]] || __burrow_status=$__burrow_last
            } >/dev/null
        } 2>/dev/null
        __burrow_done
    done
}
