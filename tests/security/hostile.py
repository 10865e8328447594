"""Text an attacker would use as a name or a value. Each carries MARK, to be searched for in generated code."""

from __future__ import annotations

MARK = "zqx7"

HOSTILE = {
    "quotes": f"""a"b'c`{MARK}""",
    "newlines": f"one\ntwo\r\n\tthree {MARK}",
    "sql": f'"; drop table events; -- {MARK}',
    "emoji": f"💧🚰 {MARK} Ünïcødé",
    "right to left": f"\u202e{MARK}\u202c",
    "keyword": f"lambda if {MARK} else yield",
    "llvm": f"@{MARK} = global i64 0\ndefine void @evil_{MARK}() {{ ret void }}",
    "llvm metadata": f'!{MARK} = !{{!"x"}} ; attributes #0 = {{ noinline }} %{MARK} %0',
    "c": f'*/ int {MARK}(void) {{ return system("true"); }} /*',
    "assembly": f".globl {MARK}\n{MARK}: ret",
    "python": f"__import__('os').system('{MARK}')",
    "format": f"{{0}} %s %n ${{{MARK}}} {{{{}}}}",
    "markup": f"[bold red]{MARK}[/] <script>{MARK}()</script>",
    "path": f"../../{MARK}",
    "long": MARK + "n" * 10_000,
    "backslashes": f"\\x00\\{MARK}\\",
    "spaces": f"  {MARK}  ",
}
