# Interactive shells only, as in the official images: what is set here is missing in `docker run IMAGE vllm serve …`.
[ -z "$PS1" ] && return
export LD_LIBRARY_PATH=/usr/local/Ascend/driver/lib64:/usr/lib64:/root/aicpu_kernels/0/aicpu_kernels_device/sand_box:${LD_LIBRARY_PATH:-}
