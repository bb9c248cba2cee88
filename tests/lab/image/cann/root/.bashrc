# Interactive shells only, as in the official images.
[ -z "$PS1" ] && return
. /usr/local/Ascend/cann/set_env.sh
. /usr/local/Ascend/nnal/atb/set_env.sh
