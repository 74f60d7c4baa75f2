# Checks on the sources that are no tests: headers-selfcontained and lint.

# hanse_check_headers(LAYER EXCLUDE_REGEX folder): every header below folder compiles alone, twice,
# with just what the layer may see.
function(hanse_check_headers layer folder exclude)
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}
        ${CMAKE_SOURCE_DIR}/${folder}/*.h)
    if(exclude)
        list(FILTER headers EXCLUDE REGEX "${exclude}")
    endif()
    if(NOT headers)
        return()
    endif()
    set(sources "")
    foreach(header IN LISTS headers)
        string(MAKE_C_IDENTIFIER ${header} id)
        set(source ${CMAKE_BINARY_DIR}/headers/${id}.c)
        file(CONFIGURE OUTPUT ${source} CONTENT
            "#include \"${header}\"\n#include \"${header}\"\ntypedef int ${id};\n")
        list(APPEND sources ${source})
    endforeach()
    add_library(headers_${layer} OBJECT EXCLUDE_FROM_ALL ${sources})
    target_include_directories(headers_${layer} PRIVATE
        $<TARGET_PROPERTY:hanse_${layer},INCLUDE_DIRECTORIES>)
    add_dependencies(headers-selfcontained headers_${layer})
endfunction()

add_custom_target(headers-selfcontained)
hanse_check_headers(base api/base "")
hanse_check_headers(api api "^api/base/")
hanse_check_headers(policy policy "")
hanse_check_headers(connectors connectors "")
hanse_check_headers(raft controlplane/raft "")
hanse_check_headers(controlplane controlplane "^controlplane/raft/")

add_custom_target(lint
    COMMAND ${CMAKE_SOURCE_DIR}/tests/lint/run ${CMAKE_BINARY_DIR}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
    USES_TERMINAL VERBATIM)
add_dependencies(lint headers-selfcontained)
