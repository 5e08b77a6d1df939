package statusz

// style of the page: the system's own fonts and colours by the system's own
// choice of light and dark. No state is told by colour alone: each has its word.
const style markup = `
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#59636e;--line:#d1d9e0;--card:#f6f8fa;--bad:#b3261e;--badbg:#fdecea;--warn:#7a4d00;--warnbg:#fff4d6;--good:#1a6b34;--goodbg:#e3f5e8;--link:#0a56c2}
@media (prefers-color-scheme:dark){:root{--bg:#0f1216;--fg:#e6e9ed;--dim:#9aa4af;--line:#323a44;--card:#181d23;--bad:#ff9d94;--badbg:#3d1512;--warn:#f2c14e;--warnbg:#332500;--good:#7ddc98;--goodbg:#0f2e19;--link:#7db4ff}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1rem;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.4rem;margin:0}h2{font-size:1.15rem;margin:2rem 0 .6rem;padding-bottom:.2rem;border-bottom:1px solid var(--line)}h3{font-size:1rem;margin:0}
p{margin:.35rem 0}ul,ol{list-style:none;margin:0;padding:0}a{color:var(--link)}
small,.dim{color:var(--dim)}small{font-size:.85em}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.9em}
.sum{font-size:1.1rem;margin:.8rem 0;padding:.6rem .8rem;border-radius:.5rem;border-left:.35rem solid}
.card{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.7rem .8rem;margin:.6rem 0}
.top{display:flex;flex-wrap:wrap;gap:.2rem .6rem;align-items:baseline;justify-content:space-between}
.w{display:inline-block;font-weight:600;font-size:.85rem;padding:0 .5rem;border-radius:1rem;border:1px solid}
.bad{color:var(--bad);background:var(--badbg);border-color:var(--bad)}.warn{color:var(--warn);background:var(--warnbg);border-color:var(--warn)}.good{color:var(--good);background:var(--goodbg);border-color:var(--good)}.quiet{color:var(--dim);background:none;border-color:var(--line)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem .8rem;margin:.4rem 0}dt{color:var(--dim)}dd{margin:0;min-width:0}
summary{cursor:pointer;padding:.35rem 0;color:var(--link)}details li{border-top:1px solid var(--line);padding:.35rem 0}
.rows li{border-bottom:1px solid var(--line);padding:.55rem 0}.rows li:last-child{border:0}
nav{display:flex;flex-wrap:wrap;gap:.2rem 1rem;margin:.6rem 0}nav a{padding:.2rem 0}
@media (max-width:34rem){body{padding:.7rem}dl{grid-template-columns:1fr;gap:0}dd{margin:0 0 .4rem}time small{display:block}}
`
