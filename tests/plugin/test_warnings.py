"""Nothing of ours warns: the page's tests pass in another project with every warning an error."""

from __future__ import annotations

from tests.harness.page_examples import ROOT, blocks
from tests.plugin.foreign_project import ForeignProject
from tests.plugin.sample_project import write_project

PAGE = ROOT / "docs" / "testing.md"
STRICT = ("-W", "error", "-m", "pytest", "-W", "error", "-p", "no:asyncio")
"""Of the interpreter and of pytest; pytest-asyncio warns of its own unset option."""
KAFKA_PYTHON = """\
from kafka import KafkaProducer


def test_hello(kafka_bootstrap, kafka_topic):
    producer = KafkaProducer(bootstrap_servers=kafka_bootstrap)
    producer.send(kafka_topic, b"tea").get()
    producer.close()
"""


def test_the_examples_of_the_page_warn_of_nothing(foreign_project: ForeignProject) -> None:
    files = {block.file: block.text for block in blocks(PAGE) if block.file}
    assert len(files) >= 4
    write_project(foreign_project.project, files)
    code, said = foreign_project.run(*STRICT)
    assert code == 0, said
    assert "warning" not in said, said
    foreign_project.await_nothing_left()


def test_what_kafka_python_warns_of_is_ended_by_the_line_on_the_page(
    foreign_project: ForeignProject,
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    line = next(part for part in text.split("`") if part.startswith("filterwarnings = "))
    ini = "[pytest]\nfilterwarnings =\n    error\n    " + line.removeprefix("filterwarnings = ")
    write_project(
        foreign_project.project, {"test_hello.py": KAFKA_PYTHON, "pytest.ini": ini + "\n"}
    )
    code, said = foreign_project.run_pytest("-p", "no:asyncio")
    assert code == 0, said
    assert "1 passed in" in said, said
