# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What npu-smi printed, as data. Pure functions: text in, records out; nothing is run.

npu-smi has no machine-readable output. Its tables differ by chip and by version (six layouts of `info` are known, from
hicann/driver npu_info_print.c and captures of versions 23.0 to 26.0), so cells are found by their borders and columns
by their names, never by position in the line. What is not understood becomes null; a chip is never made up.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .documents import decimal

HEALTH = ("OK", "Warning", "Alarm", "Critical", "UNKNOWN")
CHIP_FIELDS = (
    "device", "phy_id", "npu_id", "chip_id", "name", "health", "bus_id", "memory_total_mb", "memory_used_mb",
    "aicore_percent", "power_w", "temperature_c", "processes",
)  # fmt: skip

_BORDER = re.compile(r"^\+[-=+]{3,}$")
_VERSIONS = re.compile(r"npu-smi\s+(\S+)\s+Version:\s*(\S+)")
# Ids have at most nine digits: a row with a longer one is not understood.
_CARD = re.compile(r"^([0-9]{1,9})\s+(\S*[^\d\s]\S*)$")
_CHIP = re.compile(r"^([0-9]{1,9})(?:\s+([0-9]{1,9}))?$")
_TOO_LONG = re.compile(r"^[0-9]{10}|^[0-9]{1,9}\s+[0-9]{10}")
_IDLE = re.compile(r"No running processes found in NPU ([0-9]{1,9})(?![0-9])")
_BUS_ID = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
_PAIR = re.compile(r"\s*/\s*")
_GAP = re.compile(r"\t+|\s{2,}")


class InfoTable(NamedTuple):
    """The table of `npu-smi info`.

    layout is "phy_id" (A3: the table has physical ids), "device" (310, 310P and 310B: logical ids), "hbm" (910A and
    910B: no ids), "npu" (950: one chip an NPU) or null (a header that is not known). complete is False when the table
    was cut. processes_shown says whether there was a process table at all: without one nobody knows who uses a chip.
    """

    tool_version: Optional[str]
    driver_version: Optional[str]
    layout: Optional[str]
    chips: List[Dict[str, Any]]
    processes_shown: bool
    complete: bool


def parse_info(text: str) -> InfoTable:
    """Parse the table of `npu-smi info`; noise before and after it is ignored, rows that were cut are left out."""
    return _InfoParser().parse(text)


class _InfoParser:
    def __init__(self) -> None:
        self.layout: Optional[str] = None
        self.columns: Tuple[List[str], List[str]] = ([], [])
        self.chips: Dict[Tuple[int, int], Dict[str, Any]] = {}
        self.pending: Optional[Dict[str, Any]] = None
        self.in_processes = False
        self.idle: List[int] = []
        self.processes: List[Tuple[int, Optional[int], Dict[str, Any]]] = []
        self.complete = True
        self.after_chip = self.expects_die = False

    def parse(self, text: str) -> InfoTable:
        versions: Tuple[Optional[str], Optional[str]] = (None, None)
        started = ended_by_border = False
        for raw in text.splitlines():
            line = raw.strip()
            if _BORDER.match(line):
                started = ended_by_border = True
                self._drop_pending()
                # Within a card dies are parted by "+---+"; "+===+" ends the card.
                if self.after_chip:
                    self.expects_die = "=" not in line
                self.after_chip = False
            elif started and line.startswith("|"):
                ended_by_border = False
                match = _VERSIONS.search(line)
                if match:
                    versions = (match.group(1), match.group(2))
                elif not line.endswith("|") or len(line) < 2:
                    self.complete = False
                else:
                    self._row([cell.strip() for cell in line[1:-1].split("|")])
            elif started and line == "...":
                self.complete = False
        self._drop_pending()
        self._give_processes()
        return InfoTable(
            versions[0],
            versions[1],
            self.layout,
            list(self.chips.values()),
            self.in_processes,
            self.complete and started and ended_by_border and not self.expects_die,
        )

    def _drop_pending(self) -> None:
        """A card row whose chip row did not follow says that the table was cut; half a chip is not reported."""
        if self.pending is not None:
            self.complete = False
        self.pending = None

    def _row(self, cells: List[str]) -> None:
        if any(cell.startswith("Process id") for cell in cells):
            self.in_processes = True
        elif self.in_processes:
            self._process_row(cells)
        elif not self._header(cells):
            self._device_row(cells)

    def _header(self, cells: List[str]) -> bool:
        first = cells[0].split()
        if first[:1] == ["NPU"] and "Health" in cells:
            self.columns = (_column_names(cells[-1]), self.columns[1])
            return True
        if "Bus-Id" in cells:
            self.columns = (self.columns[0], _column_names(cells[-1]))
            names = {("Chip", "Phy-ID"): "phy_id", ("Chip", "Device"): "device", ("Chip",): "hbm", (): "npu"}
            self.layout = names.get(tuple(first))
            return True
        return False

    def _device_row(self, cells: List[str]) -> None:
        card = _card(cells)
        if card is not None:
            self._drop_pending()
            self.after_chip = self.expects_die = False
            npu_id, name = card
            values = _values(self.columns[0], cells[-1])
            self.pending = dict.fromkeys(CHIP_FIELDS)
            self.pending.update(
                npu_id=npu_id,
                name=name,
                health=cells[-2] if cells[-2] in HEALTH else None,
                power_w=_number(values.get("Power(W)")),
                temperature_c=decimal(values.get("Temp(C)")),
            )
            return
        if _TOO_LONG.match(cells[0]):
            self.complete = False
        ids = _CHIP.match(cells[0])
        unnamed = self.layout == "npu" and len(cells) == 4 and cells[0] == cells[1] == ""
        if self.pending is None or not (unnamed or (ids and len(cells) == 3)):
            return
        chip, self.pending = self.pending, None
        self.after_chip = True
        chip["chip_id"] = int(ids.group(1)) if ids else 0
        if ids and ids.group(2) and self.layout == "phy_id":
            chip["phy_id"] = int(ids.group(2))
        bus_id = cells[-2].lower()
        chip["bus_id"] = bus_id if _BUS_ID.match(bus_id) else None
        values = _values(self.columns[1], cells[-1])
        chip["aicore_percent"] = decimal(values.get("AICore(%)"))
        chip["memory_used_mb"], chip["memory_total_mb"] = _memory(values)
        self.chips.setdefault((chip["npu_id"], chip["chip_id"]), chip)

    def _process_row(self, cells: List[str]) -> None:
        idle = _IDLE.search(cells[0])
        if idle:
            self.idle.append(int(idle.group(1)))
            return
        ids = _CHIP.match(cells[0])
        pid = decimal(cells[1]) if len(cells) > 3 else None
        if not ids or pid is None:
            return
        process = {"pid": pid, "name": cells[2] or None, "memory_mb": decimal(cells[3])}
        self.processes.append((int(ids.group(1)), int(ids.group(2)) if ids.group(2) else None, process))

    def _give_processes(self) -> None:
        """Each chip gets its processes: a list where the table speaks of its NPU, null where it does not."""
        spoken_of = set(self.idle) | {npu for npu, _chip, _process in self.processes}
        for (npu_id, chip_id), chip in self.chips.items():
            if npu_id in spoken_of:
                chip["processes"] = [
                    process for npu, one, process in self.processes if npu == npu_id and one in (None, chip_id)
                ]


def _card(cells: List[str]) -> Optional[Tuple[int, str]]:
    """NPU id and chip name of a card row; a name has a character that is no digit, which a process row has not."""
    if len(cells) == 3:
        match = _CARD.match(cells[0])
        return (int(match.group(1)), match.group(2)) if match else None
    if len(cells) == 4 and _CHIP.match(cells[0]) and cells[1] and not cells[1].isdigit():
        npu_id = decimal(cells[0])
        return (npu_id, cells[1]) if npu_id is not None else None
    return None


def _column_names(cell: str) -> List[str]:
    return cell.replace("NPU Util(%)", "AICore(%)").split()


def _values(columns: List[str], cell: str) -> Dict[str, str]:
    """The values of a cell by column name; nothing when the number of values is not that of the columns."""
    words = _PAIR.sub("/", cell).split()
    return {columns[i]: word for i, word in enumerate(words)} if len(words) == len(columns) else {}


def _memory(values: Dict[str, str]) -> Tuple[Optional[int], Optional[int]]:
    """Used and total MB: the HBM pair where there is HBM, else the memory pair (310P, 310B)."""
    for name in ("HBM-Usage(MB)", "Memory-Usage(MB)"):
        if name not in values:
            continue
        used, total = (decimal(word) for word in values[name].partition("/")[::2])
        if used is None or total is None:
            # Not understood: the other pair is of another memory.
            return None, None
        if total:
            return used, total
    return None, None


def _number(word: Optional[str]) -> Optional[float]:
    return float(word) if word and re.match(r"^[0-9]{1,9}(\.[0-9]{1,9})?$", word) else None


# -- info -m, info -l, -t board, -t product ------------------------------------------------------------------------

_MAP_COLUMNS = {
    "NPU ID": "npu_id",
    "Slot ID": "slot_id",
    "Chip ID": "chip_id",
    "Chip Logic ID": "logic_id",
    "Chip Phy-ID": "phy_id",
    "Chip Name": "name",
}
# Rows of the management processors, which are no NPU chips (npu_info_print.c).
_NOT_CHIPS = ("mcu", "3559")
_NO_VALUE = ("", "NA", "N/A", "-", "[not support]", "unknown")


def parse_map(text: str) -> List[Dict[str, Any]]:
    """The rows of `npu-smi info -m`: npu_id, slot_id, chip_id, logic_id, phy_id, name; null for a column it lacks."""
    columns: List[str] = []
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in _GAP.split(line.strip())]
        if "NPU ID" in cells and "Chip ID" in cells:
            columns = cells
            continue
        if not columns or len(cells) != len(columns):
            continue
        named = {columns[i]: cell for i, cell in enumerate(cells)}
        row: Dict[str, Any] = {key: decimal(named.get(title)) for title, key in _MAP_COLUMNS.items()}
        row["name"] = named.get("Chip Name")
        if row["npu_id"] is None or row["chip_id"] is None or (row["name"] or "").lower() in _NOT_CHIPS:
            continue
        rows.append(row)
    return rows


def parse_fields(text: str) -> List[Tuple[str, str]]:
    """The `Name : value` lines of the other outputs, in order (printf `%-30s : %s`); values may hold colons."""
    fields = []
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip():
            fields.append((" ".join(name.split()), value.strip()))
    return fields


def parse_list(text: str) -> Dict[str, Any]:
    """`npu-smi info -l`: {total, npus: [{npu_id, product_name, chip_count}]}; total is null when it was not printed."""
    total: Optional[int] = None
    npus: List[Dict[str, Any]] = []
    for name, value in parse_fields(text):
        if name in ("Total Count", "Card Count"):
            total = decimal(value)
        elif name == "NPU ID" and decimal(value) is not None:
            npus.append({"npu_id": decimal(value), "product_name": None, "chip_count": None})
        elif npus and name == "Product Name":
            npus[-1]["product_name"] = _known(value)
        elif npus and name == "Chip Count":
            npus[-1]["chip_count"] = decimal(value)
    return {"total": total, "npus": npus}


def parse_board(text: str) -> Dict[str, Optional[str]]:
    """`npu-smi info -t board`: every field by its name in lower snake case ("Chip Name" → chip_name), NA as null."""
    board: Dict[str, Optional[str]] = {}
    for name, value in parse_fields(text):
        board.setdefault(re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_"), _known(value))
    return board


def parse_product(text: str) -> Optional[str]:
    """The product of `npu-smi info -t product`, null where the tool knows none (it does for 310 and 310P only)."""
    return parse_board(text).get("product_type")


def _known(value: str) -> Optional[str]:
    return None if value in _NO_VALUE else value


# -- generations ---------------------------------------------------------------------------------------------------

# Chip names as mind-cluster's default_name.go reads them; A2G and I2 are what the Chinese build prints for 910B and
# 310P (hicann/driver dcmi_inner_info_get.c). "910B" without a digit and 910ProB are first-generation chips.
_GENERATIONS = (
    (re.compile(r"^(910B|A2G)\d"), "910B"),
    (re.compile(r"^910(_93|C)"), "910_93"),
    (re.compile(r"^910(A|B|PRO|PREMIUM)"), "910"),
    (re.compile(r"^310B"), "310B"),
    (re.compile(r"^(310P|I2)\d?"), "310P"),
    (re.compile(r"^310$"), "310"),
    (re.compile(r"^950"), "950"),
)


def chip_generation(name: Optional[str], layout: Optional[str] = None) -> Optional[str]:
    """The generation of a chip name ("910B3" → 910B), null when the name does not tell.

    A3 prints a bare "Ascend910", which is no first-generation name: its table has physical ids (layout "phy_id").
    """
    bare = re.sub(r"^ASCEND\s*", "", (name or "").strip().upper())
    if bare == "910":
        return "910_93" if layout == "phy_id" else None
    return next((generation for pattern, generation in _GENERATIONS if pattern.search(bare)), None)


def table_generations(table: InfoTable) -> Tuple[str, ...]:
    """The different generations that the chips of a table have, as far as their names tell."""
    return tuple(sorted({g for g in (chip_generation(chip["name"], table.layout) for chip in table.chips) if g}))
