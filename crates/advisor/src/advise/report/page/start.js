// Everything drawn, and what the page's bar does.

const themes = { auto: ["◐", "Colours: as the system has them"], light: ["☀", "Colours: light"], dark: ["☾", "Colours: dark"] };
// A page from the disk may not be allowed to remember.
const kept = {
    get() {
        try {
            return localStorage.getItem("allot-theme");
        } catch {
            return null;
        }
    },
    set(theme) {
        try {
            localStorage.setItem("allot-theme", theme);
        } catch {
            // It stays for as long as the page is open.
        }
    },
};

function setTheme(theme) {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    const [sign, label] = themes[theme], button = at("theme");
    button.textContent = sign;
    button.setAttribute("aria-label", label);
    button.title = label;
    button.onclick = () => {
        const names = Object.keys(themes), next = names[(names.indexOf(theme) + 1) % names.length];
        kept.set(next);
        setTheme(next);
    };
}

function followChapters() {
    if (!window.IntersectionObserver) return;
    const links = new Map([...document.querySelectorAll(".bar nav a")].map(link => [link.hash.slice(1), link]));
    const seen = new Set();
    const observer = new IntersectionObserver(entries => {
        for (const { target, isIntersecting } of entries) {
            if (isIntersecting) seen.add(target.id);
            else seen.delete(target.id);
        }
        const [first] = [...links.keys()].filter(id => seen.has(id));
        for (const [id, link] of links) {
            if (id === first) link.setAttribute("aria-current", "true");
            else link.removeAttribute("aria-current");
        }
    }, { rootMargin: "-64px 0px -55% 0px" });
    for (const id of links.keys()) observer.observe(at(id));
}

setTheme(themes[kept.get()] ? kept.get() : "auto");
drawSummary();
drawTimeline();
drawFlame();
drawVerdicts();
drawSites();
drawMeasured();
drawReplay();
drawKernel();
drawLocks();
drawNotes();
followChapters();
addEventListener("keydown", event => event.key === "Escape" && tip.hide());
addEventListener("scroll", tip.hide, { passive: true });
at("made").append(`Made by allot ${data.allot}. This page needs no other file and no network.`);
// A link to a verdict, from somewhere else.
const wanted = /^#verdict-(\d+)$/.exec(location.hash);
if (wanted && groups[Number(wanted[1])]) pageParts.verdicts.show(groups[Number(wanted[1])]);
document.body.dataset.ready = "yes";
