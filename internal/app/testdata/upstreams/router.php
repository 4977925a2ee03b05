<?php
// A front controller as frameworks have them: it says in X-Handler which of its
// handlers a request has reached.
$path = rawurldecode((string) parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH));
$is = fn ($prefix) => $path === $prefix || str_starts_with($path, "$prefix/");
header('X-Handler: ' . ($path === '/exact' ? 'exact' : ($is('/login') ? 'login' : ($path === '/v1/health' ? 'health' : ($is('/v1') ? 'v1' : 'other')))));
