# SPDX-License-Identifier: GPL-2.0-only
"""RDMA to memory that is not advertised, not for this access, or no longer: the device refuses the
access, and the victim's memory does not change."""

from lib import calls, raw
from lib.memory import PAGE, Memory
from lib.raw import DATA, RDMARDCOMPL, SRCAVAIL, SRCAVAILCANCEL, word
from lib.registry import case
from .adverts import SIZE, broken, sender
from .messages import BEDS, echo, nothing_left, works

MARK = 0x5A


def refused(e, attacker, write, memory, size, address, key, what):
    """Checks that a READ or WRITE ends the connection. With iWARP a WRITE completes when TCP has
    accepted it, before the peer's device refuses it; so its caller compares the victim's memory."""
    done = (attacker.write if write else attacker.read)(memory, size, address, key)
    e.check(write or not done, f"{what} was carried out")
    e.until(lambda: attacker.state().failure, f"{what}: the end of the connection")


@case(reference=False, timeout=120, hosts=BEDS)
def outside(e):
    """Access to a byte before or after the advert, far away, across the end of the advert, and by
    WRITE."""
    bed = raw.Bed(e)
    bystander = bed.connect()
    whole = bed.memory(4 * SIZE // PAGE * PAGE).fill(1)
    before = whole.map[:]

    class Part:
        """The victim's memory: an unaligned part in the middle of an area."""
        address, size = whole.address + SIZE + 77, SIZE

    attacks = {
        "a byte before": (-1, 1, False), "across the beginning": (-1, 2, False), "a byte behind": (SIZE, 1, False), "across the end": (SIZE - 1, 2, False),
        "the whole page": (-((Part.address) % PAGE), PAGE, False), "a page behind": (SIZE + PAGE, 1, False), "address 0": (None, 8, False),
        "a WRITE": (0, 1, True), "a WRITE of all": (0, SIZE, True), "a WRITE before": (-1, 1, True), "a WRITE behind": (SIZE, 1, True),
    }
    for what, (offset, size, write) in attacks.items():
        attacker, victim, task, advert = sender(e, bed, Part)
        memory = Memory(1 << 17)
        memory.map[:] = bytes([MARK]) * memory.size
        address = 0 if offset is None else advert.address + offset
        refused(e, attacker, write, memory, size, address, advert.key, what)
        broken(e, task, victim, what)
        e.check(whole.map[:] == before, f"{what}: the victim's memory")
        e.check(memory.map[:] == bytes([MARK]) * memory.size, f"{what}: nothing was read")
        attacker.close()
        victim.close()
    echo(e, *bystander)
    nothing_left(e, bed)


@case(reference=False, timeout=60, hosts=BEDS)
def inside(e):
    """Control: advertised memory can be read from the first byte to the last."""
    bed = raw.Bed(e)
    memory, target = bed.memory(SIZE).fill(1), Memory(SIZE)
    attacker, victim, task, advert = sender(e, bed, memory)
    e.check(attacker.read(target, SIZE, advert.address, advert.key), "the READ was carried out")
    e.check(target.map[:] == memory.map[:], "the bytes")
    attacker.send(RDMARDCOMPL, word(advert.rest))
    e.equal(task.result(), SIZE, "the call")
    echo(e, attacker, victim)
    attacker.close()
    victim.close()
    nothing_left(e, bed)


@case(reference=False, timeout=120, hosts=BEDS)
def afterwards(e):
    """Access by the key of a complete, refused or cancelled advert, also when the victim advertises
    the same memory again."""
    bed = raw.Bed(e)
    memory = bed.memory(SIZE).fill(1)
    before = memory.map[:]
    for ending in ("finished", "refused", "again"):
        for write in (False, True):
            attacker, victim, task, advert = sender(e, bed, memory)
            attacker.polite = True
            if ending == "refused":
                attacker.expect(SRCAVAILCANCEL)
                attacker.send(raw.SENDSM)
                got = len(advert.payload)
                while got < SIZE:
                    message = attacker.expect(DATA, payload=True)
                    got += len(message.payload)
                    attacker.data()
            else:
                attacker.send(RDMARDCOMPL, word(advert.rest))
            e.equal(task.result(), SIZE, "the call has returned")
            keys = {advert.key}
            if ending == "again":
                # the victim advertises the same memory five more times
                for _ in range(5):
                    task = e.task(e.outcome, calls.send_at, victim, memory.address, SIZE)
                    now = attacker.expect(SRCAVAIL)
                    e.check(now.key not in keys, "each advert has a key of its own")
                    keys.add(now.key)
                    if len(keys) < 6:
                        attacker.send(RDMARDCOMPL, word(now.rest))
                        e.equal(task.result(), SIZE, "the call")
            target = Memory(SIZE)
            target.map[:] = bytes([MARK]) * SIZE
            refused(e, attacker, write, target, SIZE, advert.address, advert.key, ending)
            if ending == "again":
                broken(e, task, victim, "the call under way")
            e.check(target.map[:] == bytes([MARK]) * SIZE, f"{ending}: nothing was read")
            e.check(memory.map[:] == before, f"{ending}: the victim's memory")
            attacker.close()
            victim.close()
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, timeout=60, hosts=BEDS)
def of_others(e):
    """Access by the keys of another connection: refused on this connection, while the connection of
    the key continues."""
    bed = raw.Bed(e)
    memory = bed.memory(SIZE).fill(1)
    before = memory.map[:]
    for write in (False, True):
        attacker, victim, task, advert = sender(e, bed, memory)
        thief, other = bed.connect()
        target = Memory(SIZE)
        target.map[:] = bytes([MARK]) * SIZE
        refused(e, thief, write, target, SIZE, advert.address, advert.key, "another connection's key")
        e.check(target.map[:] == bytes([MARK]) * SIZE, "nothing was read")
        e.check(memory.map[:] == before, "the victim's memory")
        thief.close()
        other.close()
        if attacker.read(target, SIZE, advert.address, advert.key):
            e.check(target.map[:] == before, "the bytes")
            attacker.send(RDMARDCOMPL, word(advert.rest))
        else:
            e.check(False, "the connection whose key it is")
        e.equal(task.result(), SIZE, "its call")
        echo(e, attacker, victim)
        attacker.close()
        victim.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=60, hosts=BEDS)
def names(e):
    """An advert contains only the offset in a page of an address, and no two adverts are alike."""
    bed = raw.Bed(e)
    whole = bed.memory(SIZE + PAGE).fill(1)

    class Part:
        address, size = whole.address + 77, SIZE

    attacker, victim, task, advert = sender(e, bed, Part)
    seen = []
    for _ in range(20):
        seen.append(advert)
        attacker.send(RDMARDCOMPL, word(advert.rest))
        e.equal(task.result(), SIZE, "the call")
        task = e.task(e.outcome, calls.send_at, victim, Part.address, SIZE)
        advert = attacker.expect(SRCAVAIL)
    attacker.send(RDMARDCOMPL, word(advert.rest))
    task.result()
    # the bytes inside the SrcAvail are not advertised
    first = (Part.address + len(advert.payload)) % PAGE
    e.check({advert.address % PAGE for advert in seen} <= {Part.address % PAGE, first}, "the offset in the page")
    pages = {advert.address // PAGE for advert in seen}
    e.equal((len(pages), len({advert.key for advert in seen})), (len(seen),) * 2, "places and keys")
    e.check(not pages & set(range(whole.address // PAGE, (whole.address + whole.size) // PAGE + 1)), "an address of the program's")
    e.check(all(page < 1 << 50 for page in pages), f"addresses of the kernel's: {[hex(page) for page in pages]}")
    attacker.close()
    victim.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=120, hosts=BEDS)
def guessed(e):
    """Guessed keys and addresses give no access."""
    bed = raw.Bed(e)
    memory = bed.memory(SIZE).fill(1)
    before = memory.map[:]
    for number, key in enumerate((0, 1, 0xFF, 0x100, 0x1FF, 0x10000, (1 << 32) - 1)):
        for address in (0, memory.address, 0xFFFF888000000000):
            attacker, victim = bed.connect()
            target = Memory(PAGE)
            target.map[:] = bytes([MARK]) * PAGE
            refused(e, attacker, number % 2, target, 64, address, key, f"key {key:#x}, address {address:#x}")
            e.check(target.map[:] == bytes([MARK]) * PAGE, "nothing was read")
            attacker.close()
            victim.close()
    e.check(memory.map[:] == before, "the victim's memory")
    works(e, bed)
    nothing_left(e, bed)
