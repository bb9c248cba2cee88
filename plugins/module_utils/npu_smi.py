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
_NAME = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9][A-Za-z0-9_.+-]*$")
_ID = re.compile(r"^[0-9]{1,9}$")
_IDLE = re.compile(r"No running processes found in NPU ([0-9]{1,9})(?![0-9])")
_BUS_ID = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
_PAIR = re.compile(r"\s*/\s*")
# Columns whose values are pairs (used/total); a word of the other shape says that the row and its header don't fit.
_PAIR_COLUMN = "-Usage("
_GAP = re.compile(r"\t+|\s{2,}")


class InfoTable(NamedTuple):
    """The table of `npu-smi info`.

    layout is "phy_id" (A3: the table has physical ids), "device" (310, 310P and 310B: logical ids), "hbm" (910A and
    910B: no ids), "npu" (950: one chip an NPU) or null (a header that is not known). complete is False when the table
    was cut or holds a row that is not understood: then there may be more chips. processes_shown says whether there was
    a process table at all: without one nobody knows who uses a chip.
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


# Whether a chip row has a second id, by the layout; where the header is not known, it may.
_SECOND_ID: Dict[Optional[str], Tuple[bool, ...]] = {"phy_id": (True,), "device": (True,), "hbm": (False,)}


class _CardHeader(NamedTuple):
    """Of the first header row: how many cells, and at which the NPU (with its name where name is null), and so on."""

    width: Optional[int]
    npu: int
    name: Optional[int]
    health: int
    values: Optional[int]
    titles: List[str]


class _ChipHeader(NamedTuple):
    """Of the second: chip is null for the layout that has no chip ids. width is null until the header was seen."""

    width: Optional[int]
    chip: Optional[int]
    bus: int
    values: Optional[int]
    titles: List[str]


class _InfoParser:
    def __init__(self) -> None:
        self.layout: Optional[str] = None
        self.card_header = _CardHeader(None, 0, None, 1, 2, [])
        self.chip_header = _ChipHeader(None, 0, 1, 2, [])
        self.process_columns: List[str] = []
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
            self.process_columns = cells
        elif self.in_processes:
            self._process_row(cells)
        elif not self._header(cells):
            self._device_row(cells)

    def _header(self, cells: List[str]) -> bool:
        """Take a header row: where each thing is, by its title."""
        npu = next((i for i, cell in enumerate(cells) if cell.split()[:1] == ["NPU"] and "(" not in cell), None)
        if npu is not None and "Health" in cells:
            name = cells.index("Name") if "Name" in cells else None
            values = _place(cells, ("Power(W)", "Temp(C)"))
            self.card_header = _CardHeader(len(cells), npu, name, cells.index("Health"), values, _titles(cells, values))
            return True
        if "Bus-Id" in cells:
            chip = next((i for i, cell in enumerate(cells) if cell.split()[:1] == ["Chip"]), None)
            values = _place(cells, ("AICore(%)", "NPU Util(%)", _PAIR_COLUMN))
            self.chip_header = _ChipHeader(len(cells), chip, cells.index("Bus-Id"), values, _titles(cells, values))
            names = {("Chip", "Phy-ID"): "phy_id", ("Chip", "Device"): "device", ("Chip",): "hbm", (): "npu"}
            self.layout = names.get(tuple(cells[chip].split()) if chip is not None else ())
            return True
        return False

    def _device_row(self, cells: List[str]) -> None:
        if not any(cells):
            return
        card = self._card(cells)
        if card is not None:
            self._drop_pending()
            self.after_chip = self.expects_die = False
            self.pending = card
            return
        chip, self.pending = self.pending, None
        if chip is None or not self._complete_chip(chip, cells):
            # A row that is not understood: it may have been a chip.
            self.complete = False
            return
        self.after_chip = True
        self.chips.setdefault((chip["npu_id"], chip["chip_id"]), chip)

    def _card(self, cells: List[str]) -> Optional[Dict[str, Any]]:
        """The chip that a card row begins, None for another row: it has a health where a chip row has its bus id.

        Its name, where it has one, is no number, which tells it from a chip row.
        """
        head = self.card_header
        if len(cells) != (head.width or 3):
            return None
        health = cells[head.health] if cells[head.health] in HEALTH else None
        match = _CARD.match(cells[head.npu])
        bare = _ID.match(cells[head.npu]) and (head.name is not None or health is not None)
        if not bare and (match is None or head.name is not None or (head.width is None and health is None)):
            return None
        if match is None and head.name is not None and (cells[head.name].isdigit() or health is None):
            return None
        values = _values(head.titles, cells[head.values] if head.values is not None else "")
        if match is None and head.name is None and not values:
            # A row without a name must be a card's in all else.
            return None
        chip: Dict[str, Any] = dict.fromkeys(CHIP_FIELDS)
        chip.update(
            npu_id=int(match.group(1) if match else cells[head.npu]),
            name=_name(match.group(2) if match else cells[head.name] if head.name is not None else ""),
            health=health,
            power_w=_watts(values.get("Power(W)")),
            temperature_c=decimal(values.get("Temp(C)")),
        )
        return chip

    def _complete_chip(self, chip: Dict[str, Any], cells: List[str]) -> bool:
        """Add what the chip row says; False for a row that is none."""
        head = self.chip_header
        if len(cells) != (head.width or 3) or cells[head.bus] in HEALTH:
            return False
        ids = _CHIP.match(cells[head.chip]) if head.chip is not None else None
        unnamed = self.layout == "npu" and cells[self.card_header.npu] == cells[self.card_header.name or 0] == ""
        if not unnamed and (not ids or bool(ids.group(2)) not in _SECOND_ID.get(self.layout, (True, False))):
            return False
        chip["chip_id"] = int(ids.group(1)) if ids else 0
        if ids and ids.group(2) and self.layout == "phy_id":
            chip["phy_id"] = int(ids.group(2))
        bus_id = cells[head.bus].lower()
        chip["bus_id"] = bus_id if _BUS_ID.match(bus_id) else None
        values = _values(head.titles, cells[head.values] if head.values is not None else "")
        chip["aicore_percent"] = decimal(values.get("AICore(%)"))
        chip["memory_used_mb"], chip["memory_total_mb"] = _memory(values)
        return True

    def _process_row(self, cells: List[str]) -> None:
        idle = _IDLE.search(cells[0])
        if idle:
            self.idle.append(int(idle.group(1)))
            return
        if len(cells) != len(self.process_columns):
            return
        named = {title: cells[i] for i, title in enumerate(self.process_columns)}
        whose = [cells[i] for i, title in enumerate(self.process_columns) if title.split()[:1] == ["NPU"]]
        ids = _CHIP.match(whose[0]) if whose else None
        pid = decimal(named.get("Process id"))
        if not ids or not pid:
            return
        process = {
            "pid": pid,
            "name": None if (named.get("Process name") or "0").isdigit() else named["Process name"],
            "memory_mb": decimal(named.get("Process memory(MB)")),
        }
        self.processes.append((int(ids.group(1)), int(ids.group(2)) if ids.group(2) else None, process))

    def _give_processes(self) -> None:
        """Each chip gets its processes: a list where the table speaks of its NPU, null where it does not."""
        spoken_of = set(self.idle) | {npu for npu, _chip, _process in self.processes}
        for (npu_id, chip_id), chip in self.chips.items():
            if npu_id in spoken_of:
                chip["processes"] = [
                    process for npu, one, process in self.processes if npu == npu_id and one in (None, chip_id)
                ]


def _place(cells: List[str], titles: Tuple[str, ...]) -> Optional[int]:
    return next((i for i, cell in enumerate(cells) if any(title in cell for title in titles)), None)


def _titles(cells: List[str], place: Optional[int]) -> List[str]:
    return cells[place].replace("NPU Util(%)", "AICore(%)").split() if place is not None else []


def _name(text: str) -> Optional[str]:
    """A chip's name, None for what is empty, masked or another cell's value."""
    return text if _NAME.match(text) and text not in HEALTH and text not in _NO_VALUE else None


def _values(columns: List[str], cell: str) -> Dict[str, str]:
    """The values of a cell by column name; nothing when their number or their shape is not that of the columns."""
    words = _PAIR.sub("/", cell).split()
    if len(words) != len(columns) or any(("/" in word) != (_PAIR_COLUMN in columns[i]) for i, word in enumerate(words)):
        return {}
    return {columns[i]: word for i, word in enumerate(words)}


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


def _watts(word: Optional[str]) -> Optional[float]:
    """The power, which is printed with one digit after the point: a temperature has none."""
    return float(word) if word and re.match(r"^[0-9]{1,9}\.[0-9]{1,9}$", word) else None


# -- info -m, info -l, -t board and others ------------------------------------------------------------------------

_MAP_COLUMNS = {
    "NPU ID": "npu_id",
    "Slot ID": "slot_id",
    "Chip ID": "chip_id",
    "Chip Logic ID": "logic_id",
    "Chip Phy-ID": "phy_id",
    "Chip Name": "name",
}
_TOPO_NPU = re.compile(r"NPU([0-9]{1,9})\Z")
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


def parse_chips(text: str) -> Dict[str, Any]:
    """`npu-smi info -t usages`, common, health or proc-mem: {npu_id, chips: [{chip_id, …}]}, fields as in parse_board.

    "Chip ID" begins the section of a chip in some of them and ends it in others (usages); what comes before the first
    blank line is about the whole card, and a section of the management processor is left out.
    """
    npu_id: Optional[int] = None
    chips: List[Dict[str, Any]] = []
    for block in re.split(r"\n[ \t\r]*\n", text.strip("\r\n")):
        fields = {key: value for key, value in parse_board(block).items() if key != "chip_count"}
        if "npu_id" in fields:
            npu_id = decimal(fields.pop("npu_id"))
        if fields and (fields.get("chip_name") or "").lower() not in _NOT_CHIPS:
            chips.append({**fields, "chip_id": decimal(fields.get("chip_id"))})
    return {"npu_id": npu_id, "chips": chips}


def parse_remap(text: str) -> Optional[Tuple[int, int]]:
    """(NPU id, chip id) of the physical id that `npu-smi info -t phyid-remap -p` was asked for, else None."""
    board = parse_board(text)
    npu_id, chip_id = decimal(board.get("npu_id")), decimal(board.get("chip_id"))
    return None if npu_id is None or chip_id is None else (npu_id, chip_id)


def parse_topology(text: str) -> Dict[int, Dict[str, Any]]:
    """`npu-smi info -t topo`: {NPU: {links: {other NPU: "HCCS", …}, cpus: "0-23"}}; rows that were cut are left out."""
    rows: Dict[int, Dict[str, Any]] = {}
    columns: List[int] = []
    for line in text.splitlines():
        words = line.split()
        numbers = [int(match.group(1)) for match in map(_TOPO_NPU.match, words) if match]
        if len(numbers) > 1 or (numbers and words[1:2] == ["CPU"]):
            columns = numbers
        elif numbers and columns and len(words) == len(columns) + 2:
            links = {npu: words[1 + i] for i, npu in enumerate(columns)}
            if links.pop(numbers[0], None) == "X":
                rows[numbers[0]] = {"links": links, "cpus": words[-1]}
    return rows


def parse_product(text: str) -> Optional[str]:
    """The product of `npu-smi info -t product`, null where the tool knows none (it does for 310 and 310P only)."""
    return parse_board(text).get("product_type")


def _known(value: str) -> Optional[str]:
    return None if value in _NO_VALUE else value


# -- generations ---------------------------------------------------------------------------------------------------

# Chip names as mind-cluster's default_name.go reads them; A2G and I2 are what the Chinese build prints for 910B and
# 310P (hicann/driver dcmi_inner_info_get.c). 910ProB is a first-generation chip; "910B" without a digit is what a
# first-generation chip may print too, so it names no generation: the PCI id decides (d801 or d802). A name with "vir"
# is that of a virtual NPU (dcmi_environment_judge.c): its digits are the template's.
_GENERATIONS = (
    (re.compile(r"^(910B|A2G)\d"), "910B"),
    (re.compile(r"^910(_93|C)"), "910_93"),
    (re.compile(r"^910(A|PRO|PREMIUM)"), "910"),
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
