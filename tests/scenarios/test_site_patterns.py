from pathlib import Path

from tests.scenarios.bench import CONFIG, Bench

OWN = """
patterns:
  - {name: stall, literal: data loader waits, meaning: It waits., severity: warning, units: ["feeder@*.service"]}
  - {name: other, literal: data loader waits, severity: warning, units: ["zzz.service"]}
rules:
  - {name: told, severity: warning, event: {kind: log_match, patterns: [stall]}}
  - {name: not-told, severity: warning, event: {kind: log_match, patterns: [other]}}
xid_classes:
  - {xid: 31, class: hardware, reason: x}
"""


def test_a(tmp_path: Path) -> None:
    b = Bench(tmp_path, CONFIG + OWN)
    b.run(3)
    b.host.kernel.output("feeder@1.service", "data loader waits")
    b.host.kernel.output("nobody.service", "data loader waits")
    b.run(3)
    assert [c.rule for i in b.incidents for c in i.causes] == ["told"]
    print(b.incidents[0].causes)
    for e in b.spool.values():
        print(e)
    b.host.kernel.kernel(f"NVRM: Xid (PCI:{b.host.cards.pci(2)}): 31, pid=1, name=x, Ch 1")
    b.run(3)
    print([(c.rule, dict(c.facts)) for i in b.incidents for c in i.causes])
    assert b.incidents[-1].causes[0].rule == "xid-hardware"
    assert [e.fields["class"] for e in b.assembly.cycle.events if e.kind == "xid"] == ["hardware"]
