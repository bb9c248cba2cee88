# Imitation of the operator library's environment.
export ATB_HOME_PATH=/usr/local/Ascend/nnal/atb
