//! jemalloc's options, read before `main`: the settings of a process of many threads of which each
//! holds little. Measured in `docs/internals/memory.md`.

/// In jemalloc's own words, ended by a zero byte.
///
/// - Two arenas for however many threads, so that what one thread gave back serves the others.
/// - Small caches for each thread: what lies in them is nobody's.
/// - What was given back is the kernel's after a second, also when no thread calls any more.
const SETTINGS: &[u8; 114] = b"narenas:2,tcache_max:1024,tcache_nslots_small_max:8,\
dirty_decay_ms:1000,muzzy_decay_ms:0,max_background_threads:1\0";

/// Read by jemalloc when it begins.
// SAFETY: the symbol is one that jemalloc declares for this (`const char *malloc_conf`, with the
// prefix that tikv-jemalloc-sys builds it with), and a reference to an array is such a pointer.
#[unsafe(export_name = "_rjem_malloc_conf")]
#[used]
static MALLOC_CONF: &[u8; SETTINGS.len()] = SETTINGS;

/// The settings. A program that calls this has them: a static that nobody names may be left out.
#[must_use]
pub fn allocator_settings() -> &'static [u8] {
    MALLOC_CONF
}
