#include <string.h>
#include <strings.h>

#include "orchestrator/http/content.h"

#define OFFICE "application/vnd.openxmlformats-officedocument."
#define ODF "application/vnd.oasis.opendocument."

struct type_row {
    const char *extension;
    const char *type;
};

static const struct type_row types[] = {
    /* images */
    { "png", "image/png" },
    { "jpg", "image/jpeg" },
    { "jpeg", "image/jpeg" },
    { "gif", "image/gif" },
    { "webp", "image/webp" },
    { "svg", "image/svg+xml" },
    { "bmp", "image/bmp" },
    { "ico", "image/x-icon" },
    { "tif", "image/tiff" },
    { "tiff", "image/tiff" },
    { "avif", "image/avif" },
    { "heic", "image/heic" },
    /* sound and film */
    { "mp3", "audio/mpeg" },
    { "wav", "audio/wav" },
    { "ogg", "audio/ogg" },
    { "oga", "audio/ogg" },
    { "flac", "audio/flac" },
    { "m4a", "audio/mp4" },
    { "mid", "audio/midi" },
    { "mp4", "video/mp4" },
    { "webm", "video/webm" },
    { "mov", "video/quicktime" },
    { "avi", "video/x-msvideo" },
    { "mkv", "video/x-matroska" },
    /* text and data */
    { "txt", "text/plain" },
    { "log", "text/plain" },
    { "md", "text/markdown" },
    { "rst", "text/x-rst" },
    { "csv", "text/csv" },
    { "tsv", "text/tab-separated-values" },
    { "html", "text/html" },
    { "htm", "text/html" },
    { "css", "text/css" },
    { "ics", "text/calendar" },
    { "json", "application/json" },
    { "jsonl", "application/jsonl" },
    { "ndjson", "application/x-ndjson" },
    { "geojson", "application/geo+json" },
    { "ipynb", "application/x-ipynb+json" },
    { "xml", "application/xml" },
    { "yaml", "application/yaml" },
    { "yml", "application/yaml" },
    { "toml", "application/toml" },
    { "ini", "text/plain" },
    { "cfg", "text/plain" },
    { "conf", "text/plain" },
    { "sql", "application/sql" },
    { "tex", "application/x-tex" },
    { "bib", "text/x-bibtex" },
    { "parquet", "application/vnd.apache.parquet" },
    { "arrow", "application/vnd.apache.arrow.file" },
    { "feather", "application/vnd.apache.arrow.file" },
    { "h5", "application/x-hdf5" },
    { "hdf5", "application/x-hdf5" },
    { "sqlite", "application/vnd.sqlite3" },
    { "db", "application/vnd.sqlite3" },
    { "wasm", "application/wasm" },
    /* documents */
    { "pdf", "application/pdf" },
    { "ps", "application/postscript" },
    { "eps", "application/postscript" },
    { "rtf", "application/rtf" },
    { "epub", "application/epub+zip" },
    { "doc", "application/msword" },
    { "xls", "application/vnd.ms-excel" },
    { "ppt", "application/vnd.ms-powerpoint" },
    { "docx", OFFICE "wordprocessingml.document" },
    { "xlsx", OFFICE "spreadsheetml.sheet" },
    { "pptx", OFFICE "presentationml.presentation" },
    { "xlsm", "application/vnd.ms-excel.sheet.macroEnabled.12" },
    { "odt", ODF "text" },
    { "ods", ODF "spreadsheet" },
    { "odp", ODF "presentation" },
    /* archives */
    { "zip", "application/zip" },
    { "gz", "application/gzip" },
    { "tgz", "application/gzip" },
    { "tar", "application/x-tar" },
    { "bz2", "application/x-bzip2" },
    { "xz", "application/x-xz" },
    { "zst", "application/zstd" },
    { "7z", "application/x-7z-compressed" },
    { "rar", "application/vnd.rar" },
    /* code */
    { "py", "text/x-python" },
    { "js", "text/javascript" },
    { "mjs", "text/javascript" },
    { "ts", "application/typescript" },
    { "tsx", "application/typescript" },
    { "jsx", "text/javascript" },
    { "sh", "application/x-sh" },
    { "c", "text/x-c" },
    { "h", "text/x-c" },
    { "cpp", "text/x-c++" },
    { "cc", "text/x-c++" },
    { "hpp", "text/x-c++" },
    { "go", "text/x-go" },
    { "rs", "text/x-rust" },
    { "java", "text/x-java" },
    { "php", "application/x-httpd-php" },
    { "rb", "text/x-ruby" },
    { "r", "text/x-r" },
    { "d", "text/x-d" },
    { "f90", "text/x-fortran" },
    { "diff", "text/x-diff" },
    { "patch", "text/x-diff" },
    /* fonts */
    { "ttf", "font/ttf" },
    { "otf", "font/otf" },
    { "woff", "font/woff" },
    { "woff2", "font/woff2" },
};

const char *content_type_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *dot = strrchr(slash ? slash : name, '.');

    for (size_t i = 0; dot && i < ARRAY_LEN(types); i++)
        if (strcasecmp(types[i].extension, dot + 1) == 0)
            return types[i].type;
    return "application/octet-stream";
}
