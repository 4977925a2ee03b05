// A client of the Headgate rate limiter. README.md shows how to use it.
export { type Attributes, type Check, type CheckOptions, Client, type ClientOptions, type Decision, type Settlement } from "./client.js";
export { HeadgateError, type FailureKind, Mistake, Unavailable } from "./errors.js";
export { express, fastify, hono, type MiddlewareOptions, soft } from "./middleware.js";
export { Limited, obeying, type ObeyingOptions } from "./outgoing.js";
