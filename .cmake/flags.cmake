# Compiler flags of the whole tree. Assertions stay on in every build type: none defines NDEBUG.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(CMAKE_C_FLAGS_DEBUG "-O1 -g")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g -fno-omit-frame-pointer")
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")

add_compile_definitions(_GNU_SOURCE _FILE_OFFSET_BITS=64 HANSE_VERSION="${PROJECT_VERSION}")
if(HANSE_FAILPOINTS)
    add_compile_definitions(HANSE_FAILPOINTS)
endif()
# Texts are cut at their limit on purpose (struct err holds 512 bytes): no warning for truncation.
# As the Linux kernel does: GCC 12 at -O2 turned a loop over list_pop (core_read.c) into one without end; it inferred
# from a NULL that is never dereferenced. Slower code is not seen; wrong code was.
add_compile_options(-fno-strict-aliasing -fno-delete-null-pointer-checks)
add_compile_options(-Wall -Wextra -Wconversion -Wshadow -Wvla -Wno-format-truncation -fno-common
    -fstack-protector-strong -fPIE)
add_link_options(-pie -Wl,-z,relro,-z,now)
if(HANSE_WERROR)
    add_compile_options(-Werror)
endif()

if(HANSE_SANITIZE)
    if(NOT HANSE_SANITIZE MATCHES "^(address|undefined|address,undefined|thread)$")
        message(FATAL_ERROR
            "HANSE_SANITIZE=${HANSE_SANITIZE}: expected address,undefined or thread, or nothing")
    endif()
    add_compile_options(-fsanitize=${HANSE_SANITIZE} -fno-sanitize-recover=all
        -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${HANSE_SANITIZE})
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
    # Some distributions predefine a lower level; fortify and sanitizers hinder each other.
    add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
endif()

# No absolute path in the binary: the same sources give the same bytes in any folder.
add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)

find_program(HANSE_CCACHE ccache)
if(HANSE_CCACHE AND NOT CMAKE_C_COMPILER_LAUNCHER)
    # Relative to the source folder, so that several checkouts share one cache.
    set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
        CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${HANSE_CCACHE})
endif()
