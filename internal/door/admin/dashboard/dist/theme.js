// Runs before the first paint, so that a chosen theme does not flash. Without a
// choice the system's holds, by color-scheme alone.
(() => {
  try {
    const theme = localStorage.getItem("headgate-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is off: the system's theme holds.
  }
})();
