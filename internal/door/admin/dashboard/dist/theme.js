// Runs before the first paint, so that a chosen theme does not flash. Without a
// choice, color-scheme follows the system.
(() => {
  try {
    const theme = localStorage.getItem("headgate-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is off: use the system's theme.
  }
})();
