declare module "*.vue" {
  import type { Component } from "vue";

  const component: Component;
  export default component;
}

declare module "*.png" {
  const address: string;
  export default address;
}

declare module "*.css";
