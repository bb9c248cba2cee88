# Copyright (c) 2026, the vllm_ascend.fleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes out of texts and documents what must not leave a host: a name of its own stands for each value.

Equal values get equal names, so that what was equal or in conflict on the host still is. Addresses get others of the
ranges for documentation (RFC 5737, 3849, 7042). Rather a word too much is masked than one too few; what tells a host
apart in a plan stays: versions, PCI addresses, 0.0.0.0 and ::, loopback. What is masked already stays as it is.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Callable, Dict, Iterable, List, Match, Optional, Set, Tuple

from .instance_state import secret_digest
from .masking import DOCKER_MARK

SERIAL, MAC, IPV4, IPV6 = "serial", "mac", "ipv4", "ipv6"
ENVIRONMENT, LOGIN, SECRET, DIGEST, HOST_NAME = "environment", "login", "secret", "digest", "host_name"
KINDS = (SERIAL, MAC, IPV4, IPV6, ENVIRONMENT, LOGIN, SECRET, DIGEST, HOST_NAME)

MASKED_HOST = "masked-host"
MASKED_DOMAIN = "masked-domain.example"
# A secret is also looked for in every other text when it has so many characters.
SWEPT_LENGTH = 6
# Host names and secrets that are such a word are left in texts, where they stand for something else.
COMMON_WORDS = {
    "ascend", "atlas", "davinci", "default", "docker", "false", "hisilicon", "host", "huawei", "kunpeng", "linux",
    "localhost", "localdomain", "master", "model", "node", "none", "npu", "null", "openeuler", "podman", "proxy",
    "root", "running", "server", "service", "serve", "system", "true", "ubuntu", "vllm", "vllm-ascend", "worker",
}  # fmt: skip

# Variables whose values are no secrets and matter for a plan; the texts in them are masked like others.
OPEN_PREFIXES = ("ASCEND_", "HCCL_", "HCCN_", "NPU_")
OPEN_NAMES = {
    "CPU_AFFINITY_CONF", "HF_HUB_OFFLINE", "LD_LIBRARY_PATH", "LD_PRELOAD", "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS", "OMP_PROC_BIND", "PATH", "PYTORCH_NPU_ALLOC_CONF", "TASK_QUEUE_ENABLE", "TRANSFORMERS_OFFLINE",
    "VLLM_USE_MODELSCOPE", "VLLM_USE_V1", "VLLM_WORKER_MULTIPROC_METHOD",
}  # fmt: skip

_SECRET_PARTS = {
    "apikey", "auth", "authorization", "bearer", "credential", "credentials", "pass", "passphrase", "passwd",
    "password", "pwd", "secret", "secrets", "token",
}  # fmt: skip
_KEY_PARTS = {"access", "api", "encryption", "hub", "master", "private", "secret", "signing", "ssh"}
# Names with such an ending tell where or how, not what: eos_token_id, ssl_key_file, token_type.
_NO_SECRET_ENDINGS = {
    "count", "dir", "endpoint", "file", "id", "ids", "len", "length", "mode", "name", "num", "parser", "path", "size",
    "type", "url",
}  # fmt: skip
_SERIAL_NAMES = {
    "assettag", "barcode", "boardserial", "chassisserial", "dieid", "ddieid", "eid", "elabel", "elabelsn", "guid",
    "machineid", "ndieid", "nodeguid", "productserial", "productuuid", "serial", "serialno", "serialnumber",
    "serverid", "sn", "systemuuid", "uuid", "vdieid",
}  # fmt: skip
_NO_SERIALS = re.compile(r"(?:n/?a|x+|-+|none|unknown|not available|0[0 ]*|masked-.*)\Z", re.IGNORECASE)

_PRIVATE_KEY = re.compile(r"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----.*?(?:-----END \1PRIVATE KEY-----|\Z)", re.DOTALL)
_PUBLIC_KEY = re.compile(r"\b((?:ssh|ecdsa|sk-ssh)-[a-z0-9@.-]+) AAAA[0-9A-Za-z+/=]{16,}")
# Tokens that their issuers mark: Hugging Face, ModelScope, OpenAI, GitHub, GitLab, AWS, JSON web tokens.
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{8,}|ms-[0-9a-f]{8}-[0-9a-f-]{20,}|sk-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{16,}"
    r"|github_pat_\w{16,}|glpat-[\w-]{16,}|AKIA[A-Z0-9]{12,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_SCHEME_TOKEN = re.compile(r"\b(Bearer|Basic)([ \t]+)([A-Za-z0-9+/=._~-]{6,})", re.IGNORECASE)
_URL_LOGIN = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{0,30}://)([^\s\"'<>]{0,1000})@")
_BARE_LOGIN = re.compile(r"(?<![\w/@])([^\s:/@\"'<>=,;|]{1,200}:[^\s/@\"'<>|]{1,200})@(?!sha[0-9]+:)(?=[\w\[])")
_ASSIGNMENT = re.compile(r"(?<![\w.-])([A-Za-z][\w.-]*)([\"']?[ \t]*[=:][ \t]*)(\"[^\"\n]*\"|'[^'\n]*'|[^\s\"',;|]+)")
_FLAG = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)((?:=|(?:[ \t]|\\\n)+)(?!-)\S+(?:(?:[ \t]|\\\n)+(?!-)[^\s|]+)*)")
_MAC = re.compile(r"(?<![0-9A-Za-z])[0-9A-Fa-f]{2}([:-])[0-9A-Fa-f]{2}(?:\1[0-9A-Fa-f]{2}){4,}(?![0-9A-Za-z])")
_BARE_MAC = re.compile(
    r"(?i)(\bmac[\w ]{0,12}[\"']?[ \t]*[=:][ \t]*[\"']?)([0-9a-f]{12}|(?:[0-9a-f]{4}[.:-]){2}[0-9a-f]{4})\b"
)
_IPV6_WORD = re.compile(r"(?<![0-9A-Za-z.:])[0-9A-Za-z.:]*:[0-9A-Za-z.]*:[0-9A-Za-z.:]*")
_LONGEST_IPV6 = 45
_IPV4 = re.compile(r"(?<![0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9]|\.[0-9])")
# What stands before four numbers that are a version: "npu-smi 23.0.2.1", "Version: 7.1.0.3", "v1.2.3.4",
# "repository/image:1.2.3.4", "5.10.0-216.0.0.115".
_VERSION_BEFORE = re.compile(
    r"(?:(?:version|\bver|npu-smi|firmware|\bcann|\bhdk)[\"']?[\s:=|]*[\"']?|(?<![A-Za-z])(?:v|rc|oe|sp|b)"
    r"|[\w.-]+/[\w./-]+:|(?:\A|[^0-9.])[0-9]+(?:\.[0-9]+){1,2}-)\Z",
    re.IGNORECASE,
)
_VERSION_AFTER = re.compile(r"[+~]|(?:rc|a|b|beta|alpha|dev|post)[0-9]", re.IGNORECASE)
_SERIAL_LINE = re.compile(
    r"(?m)^([ \t|]*)([A-Za-z][A-Za-z0-9/_. -]{0,40}?)([ \t]*[:=][ \t]*)(\S[^\n|]*?)(?=[ \t\r]*(?:\||$))"
)
_ENV_WORD = re.compile(r"(?<![\w-])(-e|--env)(=|[ \t]+)(\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\S+)")

_CHIP = re.compile(r"v?davinci[0-9]*\Z|(?:ascend)?[0-9]{3}[a-z]{0,2}[0-9]*\Z")

_MAC_BASE = 0x00005E005300
_LOCAL_MAC_BASE = 0x020000000000
_NETWORKS4 = tuple(map(ipaddress.ip_network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15")))
_NETWORK6 = ipaddress.ip_network("2001:db8::/32")


# -- what a name says --------------------------------------------------------------------------------------------------


def is_secret_name(name: str) -> bool:
    """True for the name of a variable, key or flag whose value is a secret: VLLM_API_KEY, --hf-token, password."""
    parts = [part for part in re.split(r"[^a-z0-9]+", _snake(name)) if part]
    if not parts or parts[-1] in _NO_SECRET_ENDINGS:
        return False
    return bool(_SECRET_PARTS.intersection(parts)) or (parts[-1] == "key" and bool(_KEY_PARTS.intersection(parts)))


def is_serial_name(name: str) -> bool:
    """True for the name of a value that is only one device's: Serial Number, uuid, VDie ID."""
    return re.sub(r"[^a-z0-9]", "", name.lower()) in _SERIAL_NAMES


def is_open_variable(name: str) -> bool:
    """True for a variable of the environment whose value may be shown: ASCEND_VISIBLE_DEVICES, HCCL_BUFFSIZE."""
    return (name.startswith(OPEN_PREFIXES) or name in OPEN_NAMES) and not is_secret_name(name)


def _is_host_word(word: str) -> bool:
    """False for a host name that stands for something else in most texts: a short or common word, a chip's name."""
    if len(word) < 3 or word.isdigit() or word in COMMON_WORDS or word.startswith("masked-"):
        return False
    return not (_IPV4.match(word) or ":" in word or _CHIP.match(word))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


# -- names for values --------------------------------------------------------------------------------------------------


class Pseudonyms:
    """A name for each value, the same for equal ones: the first of make(1), make(2), … that nobody has."""

    def __init__(self, make: Callable[[int], str]) -> None:
        self.make = make
        self.names: Dict[str, str] = {}
        self.taken: Set[str] = set()
        self.number = 0

    def of(self, value: str) -> str:
        """The name of a value."""
        while value not in self.names:
            self.number += 1
            name = self.make(self.number)
            if name not in self.taken:
                self.names[value] = name
        return self.names[value]

    def forget(self) -> None:
        """Give the names out again, but for those that are known to be taken."""
        self.names, self.number = {}, 0


def ipv4_name(number: int) -> str:
    """The number-th address for documentation; after 762 of them those for benchmarks (RFC 2544)."""
    for network in _NETWORKS4:
        hosts = network.num_addresses - 2
        if number <= hosts:
            return str(network[number])
        number -= hosts
    raise OverflowError("a host with more than 131000 addresses")


def ipv6_name(number: int) -> str:
    """The number-th IPv6 address for documentation."""
    return str(_NETWORK6[number])


def mac_name(number: int) -> str:
    """The number-th MAC address for documentation; after 255 of them locally administered ones."""
    value = _MAC_BASE + number if number < 256 else _LOCAL_MAC_BASE + number
    return _octets("{0:012x}".format(value))


def _octets(digits: str) -> str:
    return ":".join(digits[place : place + 2] for place in range(0, len(digits), 2))


class Masker:
    """Masks texts and documents, and counts by kind what was masked.

    host_names are masked as whole words; hide: more texts that must not be left anywhere. It learns secrets where it
    meets them (a variable, a flag) and masks them in later texts too: feed everything to it twice, forget() between.
    """

    def __init__(self, host_names: Iterable[str] = (), hide: Iterable[str] = ()) -> None:
        self.counts: Dict[str, int] = dict.fromkeys(KINDS, 0)
        self._names = {
            SERIAL: Pseudonyms("masked-serial-{0}".format),
            MAC: Pseudonyms(mac_name),
            IPV4: Pseudonyms(ipv4_name),
            IPV6: Pseudonyms(ipv6_name),
            SECRET: Pseudonyms("masked-{0}".format),
            DIGEST: Pseudonyms("{0:x}".format),
        }
        self._hosts: Dict[str, str] = {}
        self._secrets: Dict[str, str] = {}
        self._digests: Dict[str, str] = {}
        self._sweep: Optional[Any] = None
        for name in host_names:
            self.learn_host(name)
        for text in hide:
            self.learn_secret(text)

    # -- what is known ---------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Start the second round: everything that was learnt stays, names are given anew, counts are zero."""
        self.counts = dict.fromkeys(KINDS, 0)
        for kind in (MAC, IPV4, IPV6):
            self._names[kind].forget()

    def learn_host(self, name: str, short: bool = True) -> None:
        """Mask a host's name from now on, its domain and (short) its first part too."""
        whole = name.strip().strip(".").lower()
        first, _dot, domain = whole.partition(".")
        for word, mask in (
            (whole, MASKED_HOST),
            (first if short else "", MASKED_HOST),
            (domain if "." in domain else "", MASKED_DOMAIN),
        ):
            if _is_host_word(word):
                self._hosts.setdefault(word, mask)
                self._sweep = None

    @property
    def knows_host(self) -> bool:
        """True when there is a host name that is masked in texts."""
        return MASKED_HOST in self._hosts.values()

    def learn_secret(self, value: str) -> None:
        """Mask a value wherever it stands from now on, unless it is so short or common that it means something else."""
        known = value in self._secrets or value.lower() in COMMON_WORDS or value.startswith(("/", "masked-"))
        if len(value) >= SWEPT_LENGTH and not known:
            self._secrets[value] = self._names[SECRET].of(value)
            self._sweep = None

    def learn_digest(self, digest: str, name: Optional[str] = None) -> str:
        """Mask a digest from now on, by default with zeros that end with a number; its name."""
        if digest.strip("0") and len(digest) > 4 and not digest.startswith("0" * (len(digest) // 2)):
            pseudonym = self._names[DIGEST].of(digest).zfill(len(digest))
            self._digests[digest] = name or self._digests.get(digest, pseudonym)
        return self._digests.get(digest, digest)

    # -- single values ---------------------------------------------------------------------------------------------

    def secret(self, value: str, kind: str = SECRET) -> str:
        """The name of a secret value, which is masked everywhere from now on."""
        bare = value.strip()
        if not bare or bare.startswith("masked-"):
            return value
        self.learn_secret(bare)
        self.counts[kind] += 1
        return self._names[SECRET].of(bare)

    def variable(self, name: str, value: str) -> str:
        """The value of a variable of an environment, masked unless it is known to be harmless."""
        if is_secret_name(name):
            return self.secret(value, ENVIRONMENT)
        if is_open_variable(name):
            return self.text(value)
        if not value or value.startswith("masked-"):
            return value
        self.counts[ENVIRONMENT] += 1
        return self._names[SECRET].of(value)

    def secret_variable(self, name: str, value: str) -> str:
        """The value of a variable in a file of secrets; its digest gets the digest of the masked value."""
        masked = self.secret(value, ENVIRONMENT)
        self.learn_digest(secret_digest(name, value), secret_digest(name, masked))
        return masked

    def serial(self, value: str) -> str:
        """The name of a serial number, as wide as it was."""
        bare = value.strip()
        if not bare or _NO_SERIALS.match(bare):
            return value
        self.learn_secret(bare)
        self.counts[SERIAL] += 1
        return self._names[SERIAL].of(bare).ljust(len(bare))

    def digest(self, value: str) -> str:
        """The name of a digest of something secret."""
        found = self.learn_digest(value)
        self.counts[DIGEST] += found != value
        return found

    def ip(self, word: str) -> str:
        """The other address for an IPv4 or IPv6 address; ValueError when it is none."""
        address = ipaddress.ip_address(word)
        mapped = getattr(address, "ipv4_mapped", None)
        if mapped is not None:
            return "::ffff:" + self.ip(str(mapped)) if address != ipaddress.ip_address("::ffff:0:0") else word
        kind = IPV4 if address.version == 4 else IPV6
        if address.is_unspecified or address.is_loopback or address.is_multicast or _is_netmask(address):
            return word
        names = self._names[kind]
        if any(address in network for network in (_NETWORKS4 if kind == IPV4 else (_NETWORK6,))):
            names.taken.add(str(address))
            return word
        self.counts[kind] += 1
        return names.of(str(address))

    def mac(self, word: str) -> str:
        """The other address for a MAC address (or a longer chain of octets)."""
        digits = re.sub(r"[^0-9a-f]", "", word.lower())
        if set(digits) <= {"0"} or set(digits) <= {"f"}:
            return word
        if digits.startswith(("00005e0053", "0200000000")):
            self._names[MAC].taken.add(_octets(digits))
            return word
        self.counts[MAC] += 1
        return self._names[MAC].of(digits)

    # -- texts -----------------------------------------------------------------------------------------------------

    def text(self, text: str, addresses: bool = True) -> str:
        """A text with everything in it masked that can be told by its form. addresses: False where there are none."""
        text = _PRIVATE_KEY.sub(lambda match: self.secret(match.group()), text)
        text = _PUBLIC_KEY.sub(lambda match: match.group(1) + " " + self.secret(match.group()), text)
        text = _URL_LOGIN.sub(self._url_login, text)
        text = _BARE_LOGIN.sub(self._bare_login, text)
        text = _SCHEME_TOKEN.sub(lambda match: match.group(1) + match.group(2) + self.secret(match.group(3)), text)
        text = _ENV_WORD.sub(self._env_word, text)
        text = _ASSIGNMENT.sub(self._assignment, text)
        text = _FLAG.sub(self._flag, text)
        text = _TOKEN.sub(lambda match: self.secret(match.group()), text)
        text = _SERIAL_LINE.sub(self._serial_line, text)
        if addresses:
            text = _IPV6_WORD.sub(self._ipv6_word, text)
            text = _MAC.sub(lambda match: self.mac(match.group()), text)
            text = _BARE_MAC.sub(lambda match: match.group(1) + self.mac(match.group(2)), text)
            text = _IPV4.sub(self._ipv4_word, text)
        return self.swept(text)

    def swept(self, text: str) -> str:
        """A text without the secrets, host names and digests that are known by now."""
        if self._digests:
            text = re.sub(r"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{16})(?![0-9a-f])", self._digest_word, text)
        if self._sweep is None:
            words = sorted(list(self._secrets) + list(self._hosts), key=lambda word: (-len(word), word))
            pattern = "|".join(map(re.escape, words)) or r"(?!)"
            self._sweep = re.compile(r"(?<![A-Za-z0-9])(?:{0})(?![A-Za-z0-9])".format(pattern), re.IGNORECASE)
        return self._sweep.sub(self._swept_word, text)

    def words(self, argv: List[str]) -> List[str]:
        """The words of a command line: values of secret flags, variables after -e, and what each word tells."""
        found: List[str] = []
        flag = ""
        for word in argv:
            name, equals, value = word.partition("=")
            if word.startswith("-"):
                flag = word
                if equals and name.startswith("-") and is_secret_name(name):
                    found.append(name + "=" + self.secret(value))
                    continue
                if equals and name in ("-e", "--env") and "=" in value:
                    found.append("{0}={1}".format(name, self._pair(value)))
                    continue
            elif flag in ("-e", "--env"):
                flag = ""
                found.append(self._pair(word) if equals else word)
                continue
            elif is_secret_name(flag) and "=" not in flag:
                # --api-key takes several values.
                found.append(self.secret(word))
                continue
            else:
                flag = ""
            found.append(self.text(word))
        return found

    def env_file(self, text: str) -> str:
        """A file of NAME=value lines that are secrets (docker run --env-file)."""
        lines = []
        for line in text.split("\n"):
            name, equals, value = line.partition("=")
            bare = value[:-1] if value.endswith("\r") else value
            if equals and not line.lstrip().startswith("#"):
                lines.append(name + "=" + self.secret_variable(name.lstrip(), bare) + value[len(bare) :])
            else:
                lines.append(line if not line.strip() else "# masked")
        return "\n".join(lines)

    # -- documents -------------------------------------------------------------------------------------------------

    def document(self, value: Any, key: str = "") -> Any:
        """A JSON value; what stands under a name that tells of secrets is masked whole, else by its form."""
        if isinstance(value, str):
            return self._member(value, key)
        if isinstance(value, list):
            if key in ("Env", "env"):
                return [self._pair(entry) if isinstance(entry, str) else self.document(entry) for entry in value]
            if key.lower() == "secrets":
                return [self._secret_entry(entry) for entry in value]
            if value and all(isinstance(entry, str) for entry in value):
                return self.words(value) if not is_secret_name(key) else [self.secret(entry) for entry in value]
            return [self.document(entry, key) for entry in value]
        if isinstance(value, dict):
            if key.lower() in ("environment", "env"):
                return {
                    name: self.variable(name, entry) if isinstance(entry, str) else self.document(entry)
                    for name, entry in value.items()
                }
            return {self.swept(name): self.document(entry, name) for name, entry in value.items()}
        return value

    def plan(self, committed: Dict[str, Any]) -> Dict[str, Any]:
        """A committed state. The hash of a plan in which something is masked is a digest of that, and masked too."""
        plan = committed.get("plan")
        masked = self.document(plan)
        hashes = {committed.get("plan_hash"), plan.get("plan_hash") if isinstance(plan, dict) else None}
        if masked != plan:
            for known in hashes:
                if isinstance(known, str):
                    self.learn_digest(known)
        found: Dict[str, Any] = self.document(committed)
        return found

    def _member(self, value: str, key: str) -> str:
        if is_serial_name(key):
            return self.serial(value)
        if is_secret_name(key):
            return self.secret(value)
        return self.text(value, addresses="version" not in key.lower())

    def _secret_entry(self, entry: Any) -> Any:
        if isinstance(entry, dict) and isinstance(entry.get("digest"), str):
            return dict(entry, digest=self.digest(entry["digest"]))
        return self.document(entry, "secret")

    def _pair(self, entry: str) -> str:
        name, equals, value = entry.partition("=")
        return name + equals + self.variable(name, value) if equals else self.text(entry)

    # -- matches ---------------------------------------------------------------------------------------------------

    def _url_login(self, match: Match[str]) -> str:
        scheme, rest = match.group(1), match.group(2)
        authority, slash, path = rest.partition("/")
        if "@" in authority or not slash:
            login, kept = rest, ""
            if slash and "@" in authority:
                login, _at, host = authority.rpartition("@")
                kept = host + slash + path + "@"
            return self._login(scheme, login) + kept
        if ":" in authority and not match.string[match.end() :].startswith("sha256:"):
            return self._login(scheme, rest)
        return match.group()

    def _bare_login(self, match: Match[str]) -> str:
        return self._login("", match.group(1))

    def _login(self, before: str, login: str) -> str:
        if login + "@" == DOCKER_MARK:
            return before + DOCKER_MARK
        self.learn_secret(login)
        for part in login.split(":", 1)[1:]:
            self.learn_secret(part)
        self.counts[LOGIN] += 1
        return before + DOCKER_MARK

    def _assignment(self, match: Match[str]) -> str:
        name, between, value = match.groups()
        if not is_secret_name(name) or value.startswith(("//", "[", "{", "\\")):
            return match.group()
        quote = value[0] if value[0] in "\"'" else ""
        return name + between + quote + self.secret(value.strip(quote) if quote else value) + quote

    def _flag(self, match: Match[str]) -> str:
        flag, rest = match.groups()
        if not is_secret_name(flag):
            return match.group()
        words = re.split(r"((?:[=\s\"']|\\\n)+)", rest)
        return flag + "".join(
            self.secret(word) if place % 2 == 0 and word else word for place, word in enumerate(words)
        )

    def _env_word(self, match: Match[str]) -> str:
        flag, between, word = match.groups()
        quote = word[0] if word[0] in "\"'" else ""
        inner = word[1:-1] if quote else word
        return flag + between + quote + (self._pair(inner) if "=" in inner else inner) + quote

    def _serial_line(self, match: Match[str]) -> str:
        before, name, between, value = match.groups()
        return before + name + between + (self.serial(value) if is_serial_name(name) else value)

    def _ipv6_word(self, match: Match[str]) -> str:
        word = match.group()
        starts = [0] + [place + 1 for place, letter in enumerate(word) if letter == ":"]
        for start in starts:
            for end in range(min(len(word), start + _LONGEST_IPV6), start, -1):
                if end < len(word) and word[end] not in ".:":
                    continue
                try:
                    other = self.ip(word[start:end]) if word.count(":", start, end) > 1 else None
                except ValueError:
                    other = None
                if other is not None:
                    return word[:start] + other + word[end:]
        return word

    def _ipv4_word(self, match: Match[str]) -> str:
        line = match.string[max(0, match.start() - 80) : match.start()].rpartition("\n")[2]
        if _VERSION_BEFORE.search(line) or _VERSION_AFTER.match(match.string, match.end()):
            return match.group()
        try:
            return self.ip(match.group())
        except ValueError:
            return match.group()

    def _digest_word(self, match: Match[str]) -> str:
        name = self._digests.get(match.group())
        if name is None or name == match.group():
            return match.group()
        self.counts[DIGEST] += 1
        return name

    def _swept_word(self, match: Match[str]) -> str:
        word = match.group()
        host = self._hosts.get(word.lower())
        self.counts[HOST_NAME if host else SECRET] += 1
        if host:
            return host
        return self._secrets.get(word) or next(
            name for secret, name in self._secrets.items() if secret.lower() == word.lower()
        )


def _is_netmask(address: Any) -> bool:
    """True for 255.255.255.0 and its like (a mask's bits are ones, then zeros), which name no host."""
    if address.version != 4 or int(address) < 0xFF000000:
        return False
    inverse = int(address) ^ 0xFFFFFFFF
    return inverse & (inverse + 1) == 0


def socket_rows(text: str, mask: Callable[[str], str]) -> Tuple[str, int]:
    """The rows of listening sockets in /proc/net/tcp or tcp6, and how many others (with remote peers) were left out.

    mask gives the other address for one in its usual form.
    """
    kept, dropped = [], 0
    for number, line in enumerate(text.splitlines()):
        words = line.split()
        if number == 0 and "local_address" in line:
            kept.append(line)
        elif len(words) >= 10 and words[3] == "0A":
            address, colon, port = words[1].partition(":")
            kept.append(line.replace(words[1], _kernel_form(address, mask) + colon + port, 1))
        elif words:
            dropped += 1
    return "".join(line + "\n" for line in kept), dropped


def _kernel_form(digits: str, mask: Callable[[str], str]) -> str:
    """An address of /proc/net/tcp, masked: 32-bit words as they lie in the memory of a little-endian host."""
    try:
        raw = _swapped(bytes.fromhex(digits))
        other = ipaddress.ip_address(mask(str(ipaddress.ip_address(raw))))
    except ValueError:
        return "0" * len(digits)
    return _swapped(other.packed).hex().upper()


def _swapped(raw: bytes) -> bytes:
    return b"".join(raw[place : place + 4][::-1] for place in range(0, len(raw), 4))
