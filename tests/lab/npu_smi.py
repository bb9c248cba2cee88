"""The simulated `npu-smi` of a host: a shell script that prints what the real one of its family prints.

Layouts are those of captured tables (npu-smi 25.2 to 26.0); the numbers in them are constant. Like the real program it
needs its libraries and the manager node, and lists the NPUs whose nodes it sees. What it writes on standard output has
nothing about the simulation (`npu-smi --simulated` says so): people's parsers read it.
"""

from __future__ import annotations

from typing import Any

VERSION = {"hbm": "25.5.1", "a3": "25.5.1", "ddr": "25.5.1", "950": "25.6.rc1.b143"}
IN_USE_MB = 24000

SCRIPT = """#!/bin/sh
# SIMULATED npu-smi of a simulated {family} host: it prints constant tables. `npu-smi --simulated` says so.
driver=/usr/local/Ascend/driver/lib64

detail() {{ echo "[simulated npu-smi] $1" >&2; }}
library() {{
    for folder in $driver/common $driver/driver $driver /usr/local/dcmi; do
        [ -f "$folder/$1" ] && return
    done
    echo "npu-smi: error while loading shared libraries: $1: {no_such_file}" >&2
    exit 127
}}
# Whether another container holds NPU $1: its engine locks this file of the driver folder, which all containers share.
held() {{ [ -e "$driver/.simulated-davinci$1" ] && ! flock -n -s "$driver/.simulated-davinci$1" true; }}

[ "$1" = --simulated ] && {{ echo "This npu-smi is simulated: {family}, no NPU is here."; exit 0; }}
{libraries}
if [ ! -c /dev/davinci_manager ]; then
    echo "dcmi module initialize failed. ret is -8005"
    detail "/dev/davinci_manager is not there"
    exit 187
fi
seen=
for number in {numbers}; do
    [ -c "/dev/davinci$number" ] || continue
    seen="$seen $number"
    if [ -e /.dockerenv ] && [ ! -e /run/simulated-npu-owner ] && [ ! -e /lib/systemd/systemd ] && held "$number"; then
        echo "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)"
        echo "dcmi model initialized failed, because the device is used. ret is -8020"
        detail "/dev/davinci$number is held by another container"
        exit 172
    fi
done
if [ -z "$seen" ]; then
    echo "dcmi module initialize failed. ret is -8005"
    detail "no /dev/davinci<N> is there"
    exit 187
fi

table() {{
    cat <<'END'
{head}
END
    for number in $seen; do
        used={used}
        held "$number" && used={in_use}
        case "$number" in
{rows}
        esac
    done
}}
chip() {{
    case "$1/$2" in
{chips}
    *) echo "Error parameter of -i or -c"; exit 1 ;;
    esac
}}

what=$1 type= npu= chip=
while [ $# -gt 0 ]; do
    case "$1" in
    -t) type=$2; shift ;;
    -i) npu=$2; shift ;;
    -c) chip=$2; shift ;;
    -l | -m) type=$1 ;;
    -v) echo "npu-smi version: {version}"; exit 0 ;;
    esac
    shift
done
[ "$what" = info ] || {{ echo "npu-smi: this simulation knows npu-smi info only"; exit 1; }}
case "$type" in
'') table ;;
-l)
    cat <<'END'
{listing}
END
    ;;
-m)
    cat <<'END'
{mapping}
END
    ;;
board | product) chip "$npu" "${{chip:-0}}" ;;
*) echo "npu-smi: this simulation knows no type $type"; exit 1 ;;
esac
"""

HANGING = """#!/bin/sh
# SIMULATED npu-smi of a simulated {family} host: it hangs for ten minutes, as the real one does
# with a dead chip. `npu-smi --simulated` says so. /run/simulated-npu-smi.calls has each call: its time, the
# process that it leaves in a session of its own, its words.
[ "$1" = --simulated ] && {{ echo "This npu-smi is simulated: {family}, no NPU is here, and it hangs."; exit 0; }}
trap '' HUP INT TERM
setsid sleep 600 &
echo "$(date +%s) $! $*" >> /run/simulated-npu-smi.calls
wait
echo "dcmi module initialize failed. ret is -8005"
exit 187
"""

_HBM_BORDER = "+---------------------------+---------------+----------------------------------------------------+"
_DDR_BORDER = f"+{'-' * 31}+{'-' * 17}+{'-' * 54}+"
_950_BORDER = f"+{'-' * 8}+{'-' * 18}+{'-' * 15}+{'-' * 70}+"


class Chip:
    """One chip (A3: die) of a host: its numbers in npu-smi and the names that it has there."""

    def __init__(self, index: int, number: int, spec: dict[str, Any], buses: list[str]) -> None:
        per_card = spec.get("per_card", 1)
        self.logic, self.number = index, number
        card = index // per_card
        self.npu = spec["npu_ids"][card] if "npu_ids" in spec else spec.get("first_npu", 0) + card
        self.chip = index % per_card
        self.bus = spec.get("bus") or buses[min(index, len(buses) - 1)].upper()
        self.name: str = spec["name"]
        self.total_mb: int = spec["total_mb"]


def numbers(spec: dict[str, Any]) -> list[int]:
    """The N of /dev/davinci<N> of a family's chips, in the order of npu-smi's table."""
    chips = spec.get("chips", {})
    return chips["numbers"] if "numbers" in chips else list(range(chips.get("count", 0)))


def hanging(family: str) -> str:
    """The script of a host whose npu-smi never answers."""
    return HANGING.format(family=family)


def script(family: str, spec: dict[str, Any], buses: list[str]) -> str:
    """The script of a family's host; spec is its entry in families.yml, buses the PCI addresses of its functions."""
    chips = [Chip(index, number, spec["chips"], buses) for index, number in enumerate(numbers(spec))]
    layout = spec["chips"]["layout"]
    libraries = ["libc_sec.so", "libdcmi.so"] if spec.get("card") else ["libc_sec.so"]
    return SCRIPT.format(
        family=family,
        no_such_file="cannot open shared object file: No such file or directory",
        libraries="\n".join(f"library {name}" for name in libraries),
        numbers=" ".join(str(chip.number) for chip in chips),
        head=_head(layout),
        used=spec["chips"]["used_mb"],
        in_use=spec["chips"]["used_mb"] + IN_USE_MB,
        rows="\n".join(_case(chip, layout) for chip in chips),
        chips="\n".join(_details(chip, spec) for chip in chips),
        version=VERSION[layout],
        listing=_listing(chips, layout),
        mapping=_mapping(chips, layout),
    )


def _head(layout: str) -> str:
    version = VERSION[layout]
    if layout == "ddr":
        return "\n".join(
            [
                "+" + "-" * 104 + "+",
                f"| npu-smi {version:<41}Version: {version:<45}|",
                _DDR_BORDER,
                "| NPU     Name                  | Health          "
                "| Power(W)     Temp(C)           Hugepages-Usage(page) |",
                "| Chip    Device                | Bus-Id          "
                "| AICore(%)    Memory-Usage(MB)                        |",
                _DDR_BORDER.replace("-", "="),
            ]
        )
    if layout == "950":
        return "\n".join(
            [
                "+" + "-" * 114 + "+",
                f"| npu-smi {version:<41}Version: {version:<55}|",
                _950_BORDER,
                "| NPU ID | Name             | Health        "
                "| Power(W)              Temp(C)                  Hugepages-Usage(page) |",
                "|        |                  | Bus-Id        "
                "| NPU Util(%)           Memory-Usage(MB)         HBM-Usage(MB)         |",
                _950_BORDER.replace("-", "="),
            ]
        )
    second = "| Chip  Phy-ID              |" if layout == "a3" else "| Chip                      |"
    return "\n".join(
        [
            "+" + "-" * 96 + "+",
            f"| npu-smi {version:<25}Version: {version:<53}|",
            _HBM_BORDER,
            "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
            f"{second} Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
            _HBM_BORDER.replace("-", "="),
        ]
    )


def _case(chip: Chip, layout: str) -> str:
    """The two rows of a chip and the border below, as one branch of the script's case; %-5s is the used memory."""
    if layout == "ddr":
        rows = [
            f"| {chip.npu:<8}{chip.name:<22}| OK              | NA           45                0     / 0             |",
            f"| {chip.chip:<8}{chip.number:<22}| {chip.bus:<16}| 0            %-5s/ {chip.total_mb:<33}|",
            _DDR_BORDER.replace("-", "="),
        ]
    elif layout == "950":
        rows = [
            f"| {chip.npu:<7}| {chip.name:<17}| OK            "
            "| 394.0                 46                       0     / 0             |",
            f"|        |                  | {chip.bus:<14}"
            f"| 0                     0     / 0                %-6s/ {chip.total_mb:<14}|",
            "+===========================+===============+" + "=" * 70 + "+",
        ]
    else:
        phy = chip.number if layout == "a3" else ""
        power = "-     " if layout == "a3" and chip.chip else "99.3  "
        last = "-" * 96 if layout == "a3" and not chip.chip else _HBM_BORDER.replace("-", "=")[1:-1]
        rows = [
            f"| {chip.npu:<6}{chip.name:<20}| OK            | {power}      41                0    / 0             |",
            f"| {chip.chip:<6}{phy:<20}| {chip.bus:<14}| 0           0    / 0          %-5s/ {chip.total_mb:<14}|",
            f"+{last}+",
        ]
    text = "\\n".join(rows)
    return f"        {chip.number}) printf '{text}\\n' \"$used\" ;;"


def _details(chip: Chip, spec: dict[str, Any]) -> str:
    """`info -t board` and `-t product` of a chip, as one branch of the script's case."""
    chips = spec["chips"]
    board = [("NPU ID", chip.npu), ("Chip ID", chip.chip)]
    if chips["layout"] in ("hbm", "ddr"):
        board.append(("Chip Type", "Ascend"))
    board.append(("Chip Name", chips["chip_name"]))
    if "npu_name" in chips:
        board.append(("NPU Name", chips["npu_name"]))
    board += [("PCIe Bus Info", chip.bus), ("Chip Count", chips.get("per_card", 1))]
    # Product types are documented for 310P only; elsewhere the real program says that it is not supported.
    product = (
        [("NPU ID", chip.npu), ("Product Type", chips["product"])]
        if "product" in chips
        else [("This device does not support querying product type", "")]
    )
    board_text, product_text = _fields(board), _fields(product)
    branches = f"board) printf '{board_text}' ;; *) printf '{product_text}' ;;"
    return f"    {chip.npu}/{chip.chip}) case $type in {branches} esac ;;"


def _fields(pairs: list[tuple[str, Any]]) -> str:
    return "".join(f"\\t{name:<30} : {value}\\n" if value != "" else f"{name}.\\n" for name, value in pairs)


def _listing(chips: list[Chip], layout: str) -> str:
    cards = sorted({chip.npu for chip in chips})
    lines = [f"\t{'Card Count' if layout == 'ddr' else 'Total Count':<30} : {len(cards)}"]
    for card in cards:
        count = sum(chip.npu == card for chip in chips)
        lines += ["", f"\t{'NPU ID':<30} : {card}"]
        if layout != "950":
            lines.append(f"\t{'Chip Count':<30} : {count}")
    return "\n".join(lines)


def _mapping(chips: list[Chip], layout: str) -> str:
    if layout == "950":
        names = ["NPU ID", "Slot ID", "Chip ID", "Chip Phy-ID", "Chip Name"]
        rows = [[chip.npu, chip.npu, 0, chip.number, chip.name] for chip in chips]
    elif layout == "a3":
        names = ["NPU ID", "Chip ID", "Chip Logic ID", "Chip Phy-ID", "Chip Name"]
        rows = [[chip.npu, chip.chip, chip.logic, chip.number, chip.name] for chip in chips]
    else:
        names = ["NPU ID", "Chip ID", "Chip Logic ID", "Chip Name"]
        rows = [[chip.npu, chip.chip, chip.logic, f"Ascend {chip.name}"] for chip in chips]
    return "\n".join("\t" + "".join(f"{cell!s:<31}" for cell in row).rstrip() for row in [names, *rows])
