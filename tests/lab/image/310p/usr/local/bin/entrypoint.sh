#!/bin/bash
# Imitation of the 310P images' entrypoint: without an accelerator on the PCI bus (no lspci counts as none, and this
# imitation has no lspci) the host's own daemons are started, then the command runs. No set_env.sh is sourced.
if ! lspci 2>/dev/null | grep -qi accelerators; then
    export_path=/usr/local/Ascend/driver/lib64/:/usr/lib64
    if [ -x /var/slogd ]; then LD_LIBRARY_PATH=$export_path /var/slogd -d >/dev/null 2>&1 & fi
    if [ -x /var/dmp_daemon ]; then LD_LIBRARY_PATH=$export_path /var/dmp_daemon -I -M -U 8087 >/dev/null 2>&1 & fi
fi
exec "$@"
