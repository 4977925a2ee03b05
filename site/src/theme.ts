import { useData } from "vitepress";
import DefaultTheme from "vitepress/theme-without-fonts";
import { h, onMounted, watch } from "vue";
import "../../web/src/styles/tokens.css";
import "./style.css";
import "./front.css";
import Front from "./Front.vue";
import NotFound from "./NotFound.vue";
import { correctRoles } from "./search.ts";

/** VitePress's theme with the colours, type and controls of Headgate's own pages. */
export const theme = {
  extends: DefaultTheme,
  // VitePress's own page for addresses that lead nowhere has no main part.
  Layout: () => h(DefaultTheme.Layout, null, { "not-found": () => h(NotFound) }),
  enhanceApp: ({ app }: { app: { component: (name: string, component: unknown) => void } }) => {
    app.component("Front", Front);
  },
  setup() {
    const { isDark, page } = useData();
    onMounted(correctRoles);
    onMounted(() => watch([isDark, page], ([dark]) => follow(dark), { immediate: true, flush: "post" }));
  },
};

/** Makes pictures that exist in two colours follow the chosen theme, and the playground as well. */
function follow(dark: boolean): void {
  for (const source of document.querySelectorAll<HTMLSourceElement>("picture > source")) {
    source.media = dark ? "all" : "not all";
  }
  try {
    // The playground reads this before its first paint: web/public/theme.js.
    localStorage.setItem("headgate-theme", dark ? "dark" : "light");
  } catch {
    // Storage is off: the playground uses the system's theme.
  }
}
