<?php
// A front controller as frameworks have them: it says in X-Handler which of its
// handlers a request has reached, and of /values what it reads there, as server.js does.
if (str_starts_with($_SERVER['REQUEST_URI'], '/values/')) {
    $auth = $_SERVER['HTTP_AUTHORIZATION'] ?? null;
    $at = strripos((string) $auth, 'Bearer ');
    $trimmed = fn ($v) => is_string($v) ? trim($v) : $v;
    $user = $_SERVER['PHP_AUTH_USER'] ?? null;
    echo json_encode([
        'query' => ['own' => $_GET['user_id'] ?? null, 'trimmed' => $trimmed($_GET['user_id'] ?? null)],
        'cookie' => ['own' => $_COOKIE['session'] ?? null],
        'field' => ['own' => $_SERVER['HTTP_X_API_KEY'] ?? null, 'trimmed' => $trimmed($_SERVER['HTTP_X_API_KEY'] ?? null)],
        'bearer' => [
            'second' => explode(' ', (string) $auth)[1] ?? null,
            'pattern' => preg_match('/Bearer\s(\S+)/', (string) $auth, $found) ? $found[1] : null,
            'laravel' => $at === false ? null : explode(',', substr((string) $auth, $at + 7))[0],
        ],
        'basic' => ['own' => $user === null ? null : $user . ':' . ($_SERVER['PHP_AUTH_PW'] ?? '')],
    ], JSON_INVALID_UTF8_SUBSTITUTE | JSON_PARTIAL_OUTPUT_ON_ERROR);
    return;
}
$path = rawurldecode((string) parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH));
$is = fn ($prefix) => $path === $prefix || str_starts_with($path, "$prefix/");
header('X-Handler: ' . ($path === '/exact' ? 'exact' : ($is('/login') ? 'login' : ($path === '/v1/health' ? 'health' : ($is('/v1') ? 'v1' : 'other')))));
