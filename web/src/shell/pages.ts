/** The pages of the admin door, in the order of the navigation. */
export const pages = [
  { name: "Dashboard", href: "./", key: "d" },
  { name: "Rules", href: "./rules", key: "r" },
  { name: "Keys", href: "./keys", key: "k" },
  { name: "Queue", href: "./queue", key: "q" },
  { name: "Events", href: "./events", key: "e" },
  { name: "Playground", href: "./playground", key: "p" },
] as const;

/** The name of a page. */
export type PageName = (typeof pages)[number]["name"];
