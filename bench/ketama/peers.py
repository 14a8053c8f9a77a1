# The answers of pylibmc, memcached and libmemcached, as lines for ketama_peers.erl.
#
#     peers.py SEED LISTS KEYS
#
# `pylibmc': real memcacheds, some on the default port, some on others, some on ::1. Each has every
# key, and as its value the name of the memcached itself: so what pylibmc gets for a key says whom
# it asked. KEYS random keys, LISTS random lists of these memcacheds, and of each list ten random
# keys.
#
# `libmemcached': memcached_generate_hash() of the library, without a network: up to 100 servers,
# any host and weight, and Unix sockets, which pylibmc doesn't mix with others.
#
# A line is `about TEXT' or, separated by spaces, `case', who answers, mode, hash, the servers as
# `name=weight;...', and the answers as `key in hex=index of the server;...'.

import ctypes
import random
import signal
import socket
import subprocess
import sys
import time

import pylibmc

HOSTS = 24
KEYS_PER_LIST = 10
LISTS_WITHOUT_NETWORK = 3000
KEYS_WITHOUT_NETWORK = 100
# Debian's libmemcached ends itself beyond.
SERVERS_MAX = 100
START_S_MAX = 10
HASHES = ['default', 'md5', 'crc', 'fnv1_64', 'fnv1a_64', 'fnv1_32', 'fnv1a_32']
# libmemcached's numbers: memcached_hash_t, and memcached_server_distribution_t.
HASH_NUMBERS = {name: number for number, name in enumerate(HASHES)}
DISTRIBUTIONS = {'libmemcached_unweighted': 2, 'spy': 4, 'libmemcached': 5}
MODES = list(DISTRIBUTIONS)


def say(*words):
    sys.stdout.write(' '.join(str(word) for word in words) + '\n')


def weights(count, largest):
    kind = random.randrange(4)
    if kind == 0:
        return [random.choice([1, 1, 100])] * count
    most = [10, 2000, largest][kind - 1]
    return [random.randint(1, most) for _ in range(count)]


def keys(count):
    letters = bytes(byte for byte in range(0x21, 0x100) if byte != 0x7f)
    some = set()
    while len(some) < count:
        length = random.choice([random.randint(1, 20), random.randint(1, 200)])
        some.add(bytes(random.choice(letters) for _ in range(length)))
    return sorted(some)


def say_case(by, mode, hash_name, servers, answers):
    say('case', by, mode, hash_name, ';'.join(f'{name}={weight}' for name, weight in servers),
        ';'.join(f'{key.hex()}={index}' for key, index in answers))


# --- memcached -----------------------------------------------------------------------------------

def free_port(family, host):
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def places():
    """Names as pylibmc takes them, memcached's options, and where to connect."""
    for n in range(HOSTS):
        host = f'127.21.0.{n + 1}'
        port = 11211 if n % 2 == 0 else free_port(socket.AF_INET, host)
        name = host if n % 4 == 0 else f'{host}:{port}'
        yield name, ['-l', host, '-p', str(port)], (socket.AF_INET, (host, port))
    try:
        for _ in range(6):
            port = free_port(socket.AF_INET6, '::1')
            yield f'[::1]:{port}', ['-l', '::1', '-p', str(port)], (socket.AF_INET6, ('::1', port))
    except OSError:
        say('about', 'this machine has no ::1')


def connected(family, address):
    until = time.monotonic() + START_S_MAX
    while True:
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.connect(address)
            return connection
        except OSError:
            connection.close()
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def statistic(connection, name):
    connection.sendall(b'stats\r\n')
    said = b''
    while not said.endswith(b'END\r\n'):
        part = connection.recv(65536)
        if part == b'':
            raise SystemExit('memcached has closed the connection')
        said += part
    return int(said.split(f'STAT {name} '.encode())[1].split()[0])


def fill(connection, name, some_keys):
    value = name.encode()
    connection.sendall(b''.join(b'set %s 0 0 %d noreply\r\n%s\r\n' % (key, len(value), value)
                                for key in some_keys))
    items = statistic(connection, 'curr_items')
    if items != len(some_keys):
        raise SystemExit(f'{name} has {items} of {len(some_keys)} keys')


# `hash' comes behind `ketama_weighted', which sets it to md5, and before `ketama', which makes the
# points.
def client(mode, hash_name, specs):
    if mode == 'libmemcached_unweighted':
        made = pylibmc.Client(specs, behaviors={'hash': hash_name})
        made.set_behaviors({'ketama': True})
        return made
    made = pylibmc.Client(specs, behaviors={'ketama_weighted': True})
    if mode == 'spy':
        made.set_behaviors({'distribution': 'consistent ketama spy'})
    made.set_behaviors({'hash': hash_name})
    return made


def spec(name, weight):
    """As pylibmc takes a name with its weight."""
    has_port = ']:' in name if name.startswith('[') else ':' in name
    return f'{name}:{weight}' if has_port else f'{name}:11211:{weight}'


# pylibmc itself cuts weights to 16 bits.
def ask_pylibmc(mode, hash_name, all_names, some_keys):
    names = random.sample(all_names, random.randint(1, len(all_names)))
    servers = list(zip(names, weights(len(names), 2 ** 16 - 1)))
    asked = client(mode, hash_name, [spec(name, weight) for name, weight in servers])
    indexes = {name.encode(): index for index, name in enumerate(names)}
    picked = random.sample(some_keys, KEYS_PER_LIST)
    found = asked.get_multi(picked)
    asked.disconnect_all()
    if len(found) != len(picked):
        raise SystemExit(f'{len(found)} of {len(picked)} keys were there')
    say_case('pylibmc', mode, hash_name, servers, [(key, indexes[found[key]]) for key in picked])


# --- libmemcached --------------------------------------------------------------------------------

def library():
    loaded = ctypes.CDLL('libmemcached.so.11')
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    for name, result, arguments in [
            ('memcached_lib_version', ctypes.c_char_p, []),
            ('memcached_create', pointer, [pointer]),
            ('memcached_free', None, [pointer]),
            ('memcached_behavior_set', ctypes.c_int, [pointer, ctypes.c_int, ctypes.c_uint64]),
            ('memcached_server_list_append_with_weight', pointer,
             [pointer, ctypes.c_char_p, ctypes.c_uint16, number, pointer]),
            ('memcached_server_list_free', None, [pointer]),
            ('memcached_server_push', ctypes.c_int, [pointer, pointer]),
            ('memcached_generate_hash', number, [pointer, ctypes.c_char_p, ctypes.c_size_t]),
            ('libmemcached_string_behavior', ctypes.c_char_p, [ctypes.c_int])]:
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def behaviors(loaded):
    names = [loaded.libmemcached_string_behavior(number).decode() for number in range(39)]
    return {name.replace('MEMCACHED_BEHAVIOR_', ''): number for number, name in enumerate(names)}


def hosts(count):
    """Host, port and name of servers that needn't exist; now and then one is there twice."""
    some = []
    for n in range(count):
        if random.random() < 0.1:
            some.append((f'/run/{n}.sock', 0, f'/run/{n}.sock'))
            continue
        port = random.choice([11211, 11211, random.randint(1, 65535)])
        host = random.choice(['10.{}.{}.{}', 'cache-{}.host{}.example{}', '2001:db8:{}::{}:{}'])
        host = host.format(*(random.randint(0, 255) for _ in range(3)))
        bracketed = f'[{host}]' if ':' in host else host
        some.append((host, port, bracketed if port == 11211 and random.random() < 0.5
                     else f'{bracketed}:{port}'))
    if count > 3 and random.random() < 0.2:
        some[random.randrange(count)] = random.choice(some)
    return some


def ask_library(loaded, numbers, mode, hash_name, some_keys):
    places_asked = hosts(random.randint(1, SERVERS_MAX))
    some_weights = [random.choice([weight, weight, 0]) if weight == 1 else weight
                    for weight in weights(len(places_asked), 2 ** 32 - 1)]
    asked = loaded.memcached_create(None)

    def set_to(name, value):
        if loaded.memcached_behavior_set(asked, numbers[name], value) != 0:
            raise SystemExit(f'libmemcached refuses {name}')

    servers = None
    for (host, port, _), weight in zip(places_asked, some_weights):
        servers = loaded.memcached_server_list_append_with_weight(servers, host.encode(), port,
                                                                  weight, None)
    loaded.memcached_server_push(asked, servers)
    loaded.memcached_server_list_free(servers)
    set_to('KETAMA' if mode == 'libmemcached_unweighted' else 'KETAMA_WEIGHTED', 1)
    set_to('HASH', HASH_NUMBERS[hash_name])
    # Makes the points anew, by that hash; a change of the hash alone doesn't.
    set_to('DISTRIBUTION', DISTRIBUTIONS[mode])
    # By name: of one that is there twice, the library says either.
    names = [name for _, _, name in places_asked]
    answers = [(key, names.index(names[loaded.memcached_generate_hash(asked, key, len(key))]))
               for key in some_keys]
    loaded.memcached_free(asked)
    say_case('libmemcached', mode, hash_name, list(zip(names, some_weights)), answers)


# --- all -----------------------------------------------------------------------------------------

def mode_and_hash(n):
    """The modes in turns, half of the time with the hash that a client without settings has."""
    mode = MODES[n % len(MODES)]
    usual = 'default' if mode == 'libmemcached_unweighted' else 'md5'
    return mode, usual if random.random() < 0.5 else random.choice(HASHES)


def run(lists, some_keys, started):
    all_places = list(places())
    for name, options, _ in all_places:
        started.append(subprocess.Popen(['memcached', '-u', 'root', '-U', '0', '-t', '1',
                                         '-m', '64', *options]))
    for process, (name, _, (family, address)) in zip(started, all_places):
        with connected(family, address) as connection:
            if statistic(connection, 'pid') != process.pid:
                raise SystemExit(f'{name} is not the memcached that was started')
            fill(connection, name, some_keys)
    names = [name for name, _, _ in all_places]
    say('about', f'{len(names)} memcacheds, {len(some_keys)} keys in each')
    for n in range(lists):
        ask_pylibmc(*mode_and_hash(n), names, some_keys)


def main(seed, lists, keys_count):
    # So that the memcacheds end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    random.seed(int(seed))
    some_keys = keys(int(keys_count))
    loaded = library()
    memcached = subprocess.run(['memcached', '-V'], capture_output=True, text=True, check=True)
    say('about', f'pylibmc {pylibmc.__version__}, {memcached.stdout.strip()}, libmemcached '
        + loaded.memcached_lib_version().decode())
    started = []
    try:
        run(int(lists), some_keys, started)
    finally:
        for process in started:
            process.terminate()
            process.wait()
    numbers = behaviors(loaded)
    for n in range(LISTS_WITHOUT_NETWORK):
        ask_library(loaded, numbers, *mode_and_hash(n),
                    random.sample(some_keys, KEYS_WITHOUT_NETWORK))


main(*sys.argv[1:])
