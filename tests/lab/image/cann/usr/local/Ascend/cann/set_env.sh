# Imitation of CANN's environment: what the ENTRYPOINT of the A2, A3 and 950 images sources.
export ASCEND_TOOLKIT_HOME=/usr/local/Ascend/cann
export LD_LIBRARY_PATH=/usr/local/Ascend/driver/lib64:/usr/local/Ascend/driver/lib64/common:/usr/local/Ascend/driver/lib64/driver:${ASCEND_TOOLKIT_HOME}/lib64:${LD_LIBRARY_PATH:-}
