"""Shares of CPU time by kind of work, from what perf prints."""

from __future__ import annotations

from benchmarks.perf_samples import kind_of, shares

KERNEL, LIBC = "[kernel.kallsyms]", "/usr/lib/x86_64-linux-gnu/libc.so.6"
PYTHON = "/usr/lib/libpython3.11.so.1.0"
PRINTED = f"""
\tffffffff81e30e83 tcp_recvmsg+0x23 ({KERNEL})
\tffffffff81e2e388 __x64_sys_recvfrom ({KERNEL})
\t          10afa8 recv ({LIBC})

\tffffffff81016043 exc_page_fault ({KERNEL})
\tffffffff81000bd6 asm_exc_page_fault ({KERNEL})
\t          15c3a0 __memmove_avx512_unaligned_erms ({LIBC})


\t          199a27 _PyEval_EvalFrameDefault ({PYTHON})
\t    7f9fb1258ea0 [unknown] ([unknown])

\t          199a29 _PyEval_EvalFrameDefault ({PYTHON})
"""


def test_a_sample_counts_for_the_system_call_that_it_is_in_or_for_its_library() -> None:
    found = shares(PRINTED.splitlines())

    assert found == {"interpreter": 0.5, "kernel: recvfrom": 0.25, "kernel: page faults": 0.25}
    assert next(iter(found)) == "interpreter", "the largest share comes first"


def test_what_interrupts_a_process_counts_for_no_system_call() -> None:
    assert kind_of([("handle_softirqs", KERNEL), ("_PyEval_EvalFrameDefault", PYTHON)]) == (
        "kernel: the rest"
    )


def test_compiled_modules_and_copies_have_names_of_their_own() -> None:
    library = "/x/site-packages/barnabas__mypyc.cpython-311-x86_64-linux-gnu.so"
    assert kind_of([("CPyDef_section_check____walk", library)]) == "compiled modules"
    assert kind_of([("__memmove_avx512_unaligned_erms", LIBC)]) == "C library (copies)"
    assert kind_of([("anything", "[unknown]")]) == "other libraries"


def test_without_a_sample_there_is_no_share() -> None:
    assert shares([]) == {}
