"""How a report looks: light, dark and on paper."""

STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --text: #1c2127; --quiet: #5b6570; --line: #dfe3e8; --tint: #f5f7f9;
  --c0: #1f5fa8; --c1: #c2600a; --c2: #237a4d; --c3: #7d45b0; --c4: #b32f40; --c5: #6f6000; --c6: #217f95;
  --c7: #444c55; }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --text: #e3e8ee; --quiet: #9aa5b1; --line: #2f3740;
  --tint: #1c2229; --c0: #6aa9f0; --c1: #f0974a; --c2: #5cc48c; --c3: #bd92ea; --c4: #f07a88; --c5: #cdb93f;
  --c6: #5fc3da; --c7: #b6bec7; } }
@media print { :root { --page: #ffffff; --text: #000000; --quiet: #444444; --line: #cccccc; --tint: #ffffff;
  --c0: #1f5fa8; --c1: #c2600a; --c2: #237a4d; --c3: #7d45b0; --c4: #b32f40; --c5: #6f6000; --c6: #217f95;
  --c7: #444c55; }
  h2, h3 { break-after: avoid; } svg, tr { break-inside: avoid; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.2rem 4rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.4rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; overflow-wrap: anywhere; }
p { margin: .4rem 0; max-width: 44rem; } p.note, li.note { color: var(--quiet); font-size: .88rem; }
code { font: .85em ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--tint); border: 1px solid var(--line);
  border-radius: 6px; padding: .6rem .8rem; margin: .5rem 0; }
.table { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .88rem; width: 100%; }
th, td { padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { color: var(--quiet); font-weight: 600; white-space: nowrap; }
td { overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
td.short { white-space: nowrap; } td.name { min-width: 8.5rem; } td.long { min-width: 19rem; }
ul.legend { list-style: none; padding: 0; margin: .5rem 0; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem;
  font-size: .88rem; }
ul.legend svg { width: 1.1rem; height: .7rem; display: inline-block; margin-right: .4rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); gap: .5rem 1.5rem; }
svg { max-width: 40rem; }
svg { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; }
.grid { stroke: var(--line); } .tick { fill: var(--quiet); } .axis { fill: var(--text); }
.level { stroke: var(--quiet); stroke-dasharray: 4 4; }
polyline { fill: none; stroke-linejoin: round; } .line { stroke-width: 2.4; } .thin { stroke-width: 1; opacity: .4; }
.band { opacity: .16; } .hollow { fill: none; stroke-width: 1.6; opacity: .75; }
""" + "\n".join(f".s{i} {{ stroke: var(--c{i}); }} .f{i} {{ fill: var(--c{i}); }}" for i in range(8))
